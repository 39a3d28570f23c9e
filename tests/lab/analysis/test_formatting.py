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
    toy.add_points(full=[2.132, 2.133, 2.135], gate=[2.632, 2.634, 2.6345])
    toy.add_point("same", [2.1321, 2.1332, 2.135])
    return toy


def test_numbers_that_four_decimals_do_not_show_have_more(toy):
    toy.add_points(full=[2.132e-6, 2.133e-6, 2.135e-6], gate=[2.632e-6, 2.634e-6, 2.6345e-6])
    text = render(study_ranking(toy.path), "md")
    assert "cut gate (4.983e−07 to 5.021e−07)" in text
    assert "+5.0017e−07 ±1.8973e−09" in text


def test_a_uniform_model_over_256_bytes_has_8_bits_per_byte(toy):
    toy.add_point("full", [math.log(256)] * 2)
    add_sizes(toy, {"characters": 66, "bytes": 99})  # each token is a byte
    for unit, bits in {"bpb": 8, "bpc": 12}.items():
        frame = study_ranking(toy.path, unit=unit).frame
        assert row(frame, "full")["loss"] == pytest.approx(bits)
    nats = row(study_ranking(toy.path).frame, "full")
    assert nats["bits_per_byte"] == pytest.approx(8)
    assert nats["bits_per_character"] == pytest.approx(12)
    assert nats["perplexity"] == pytest.approx(256)


def test_records_without_sizes_are_refused(study):
    with pytest.raises(UserError, match=r"lack the size of the test text.*--unit token"):
        study_ranking(study.path, unit="bpc")
    assert "bits per character" not in render(study_ranking(study.path), "md")


def test_a_training_objective_has_neither_bits_nor_perplexity(study):
    study.add_point("masked", [1.0, 1.1], score="objective")
    add_sizes(study)
    frame = study_ranking(study.path, unit="bpc").frame
    assert [row(frame, point)["loss"] is None for point in ("masked", "full")] == [True, False]
    assert row(study_ranking(study.path).frame, "masked")["perplexity"] is None


def test_a_wrong_unit_is_refused(study):
    add_sizes(study)
    with pytest.raises(UserError, match=r"no unit 'bits'.*token, sentence, bpc, bpb"):
        study_ranking(study.path, unit="bits")
