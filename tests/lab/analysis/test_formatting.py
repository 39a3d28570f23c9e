"""Units of a loss: by hand, and verdicts that do not depend on the unit."""

import math

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import render
from lmzoo.lab.store.records import RECORDS
from tests.lab.analysis.toy_study import ToyStudy, change_lines, row

SIZES = {"characters": 198, "bytes": 396, "words": 33}
"""Per token two characters, four bytes, a third of a word; a test event has 99 tokens."""


def add_sizes(toy: ToyStudy, sizes: dict[str, int] = SIZES) -> ToyStudy:
    """Add the size of the text to all test events, as a run writes them."""
    for path in toy.path.glob(f"*/{RECORDS}"):
        change_lines(path, "test", **sizes)
    toy.write()
    return toy


@pytest.fixture
def study(toy):
    toy.add_points(
        """
        full: 2.132   2.133   2.135
        gate: 2.632   2.634   2.6345
        same: 2.1321  2.1332  2.135
        """
    )
    return toy


def test_numbers_that_four_decimals_do_not_show_have_more(toy):
    toy.add_points(
        """
        full: 2.132e-6  2.133e-6  2.135e-6
        gate: 2.632e-6  2.634e-6  2.6345e-6
        """
    )
    text = render(study_ranking(toy.path), "md")
    assert "cut gate (4.983e−07 to 5.021e−07)" in text
    assert "+5.0017e−07 ±1.8973e−09" in text


@pytest.fixture
def uniform(toy):
    """A uniform model over 256 bytes; each token is a byte."""
    # 256 equal probabilities.
    toy.add_point("full", [math.log(256)] * 2)
    return add_sizes(toy, {"characters": 66, "bytes": 99})


@pytest.mark.parametrize(("unit", "bits"), [("bpb", 8), ("bpc", 12)])
def test_a_uniform_model_over_256_bytes_has_8_bits_per_byte(uniform, unit, bits):
    frame = study_ranking(uniform.path, unit=unit).frame
    assert row(frame, "full")["loss"] == pytest.approx(bits)


def test_a_ranking_in_nats_has_columns_of_bits(uniform):
    found = row(study_ranking(uniform.path).frame, "full")
    assert found["bits_per_byte"] == pytest.approx(8)
    assert found["bits_per_character"] == pytest.approx(12)
    assert found["perplexity"] == pytest.approx(256)


def test_records_without_sizes_are_refused(study):
    with pytest.raises(UserError, match=r"lack the size of the test text.*--unit token"):
        study_ranking(study.path, unit="bpc")


def test_records_without_sizes_have_no_bits(study):
    assert "bits per character" not in render(study_ranking(study.path), "md")


@pytest.fixture
def with_an_objective(study):
    study.add_points("masked: 1.0 1.1", score="objective")
    return add_sizes(study)


def test_a_training_objective_has_no_bits(with_an_objective):
    frame = study_ranking(with_an_objective.path, unit="bpc").frame
    assert row(frame, "masked")["loss"] is None
    assert row(frame, "full")["loss"] is not None


def test_a_training_objective_has_no_perplexity(with_an_objective):
    frame = study_ranking(with_an_objective.path).frame
    assert row(frame, "masked")["perplexity"] is None


def test_a_wrong_unit_is_refused(study):
    add_sizes(study)
    with pytest.raises(UserError, match=r"no unit 'bits'.*token, sentence, bpc, bpb"):
        study_ranking(study.path, unit="bits")
