import numpy as np
import pytest

from lmzoo.lab.analysis.environments import TINY, jump
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import FORMATS, csv_note, render
from lmzoo.lab.store.records import json_bytes, read_json

from .toy_study import rank, row

NEW = {"torch": "3+cu1", "packages": {"tiny": "2"}, "variables": {"LEVEL": None}}
OLD = {"torch": "2", "packages": {"tiny": "1"}, "variables": {"LEVEL": "9f"}}


@pytest.fixture
def toy(toy):
    toy.add_points("full: 3.0 3.01")
    return toy


def warnings(toy) -> str:
    return " ".join(study_ranking(toy.path).warnings)


@pytest.fixture
def upgraded(toy):
    """A study of which one point was trained with another torch."""
    toy.add_points("gate: 3.5 3.51", environment={"torch": "3"})
    toy.add_points("carry: 3.5 3.51")
    return toy


def test_a_point_of_another_environment_has_no_verdict(upgraded):
    table = rank(upgraded)
    gate = row(table, "gate")
    assert gate["verdict"] is None
    assert gate["probability_worse"] is None
    assert "apart" in gate["marks"]
    assert row(table, "carry")["verdict"]


@pytest.mark.parametrize("form", [*FORMATS, "table"])
def test_every_form_says_why_a_point_has_no_verdict(upgraded, form):
    report = study_ranking(upgraded.path)
    if form == "csv":
        text = csv_note(report)
    else:
        text = render(report, form).replace("\n", " ")
    assert "2 of 6 runs were trained with torch 3, others with torch 2: cut gate" in text
    assert "not comparable: cut full with torch 2, cut gate with 3" in text


@pytest.mark.parametrize(
    ("program", "said"), [(None, ["torch"]), ("function", ["torch", "tiny", "LEVEL"])]
)
def test_what_can_change_a_number_is_said(toy, program, said):
    newer = NEW | {"commit": "f00", "cpu": "x"}
    toy.add_points("gate: 3.5", environment=OLD, program=program)
    toy.add_points("carry: 3.5", environment=newer, program=program)
    text = warnings(toy)
    assert [name for name in ("torch", "tiny", "LEVEL", "commit", "cpu") if name in text] == said


def test_what_cannot_is_not(toy):
    quiet = {"torch": "2+cu1", "commit": "f00+", "threads": 9, "device": "H200"}
    toy.add_points("gate: 3.5", environment=quiet)
    assert "trained with" not in warnings(toy)


def test_points_that_share_a_value_are_compared(toy):
    """Half of the runs of each were trained after an upgrade."""
    toy.add_points("gate: 3.5 3.51")
    path = toy.config_path("gate-confirm-2")
    config = read_json(path) | {"environment": {"torch": "3"}}
    path.write_bytes(json_bytes(config))
    assert row(rank(toy), "gate")["verdict"]
    assert "not comparable" not in warnings(toy)
    assert "1 of 4 runs" in warnings(toy)


def test_a_jump_of_all_points_is_said(toy):
    # Only points whose losses jump.
    toy.study_json["points"].clear()
    toy.study_json["chosen"].clear()
    toy.add_points(
        """
        full: 3.0  3.001  8.0  8.001
        gate: 3.1  3.101  8.1  8.101
        """
    )
    assert "the points change by +5 after the first 2 seeds" in warnings(toy)
    for name in ("carry", "state"):
        toy.add_point(name, [3.1, 3.0, 3.101, 3.001])
    assert "the points change" not in warnings(toy)


def p_of_jump(losses):
    _, p, *_ = jump(np.array(losses))
    return p


def test_one_percent_of_seeds_without_a_border_have_a_jump():
    rng = np.random.default_rng(0)
    ps = np.array([p_of_jump(rng.normal(size=5)) for _ in range(1000)])
    # Ten of a thousand are expected.
    assert (ps < 0.01).sum() < 15


@pytest.mark.parametrize("losses", [[0.9, 0.9, 0.9, 1.0], []])
def test_seeds_of_few_values_and_none_have_no_jump(losses):
    """An accuracy has few values."""
    assert p_of_jump(losses) > TINY


@pytest.fixture
def with_equals(toy):
    """Seeds of `gate` and of a model of counts are equal, and so are `carry` and the reference."""
    toy.add_points(
        """
        gate:  3.5  3.5
        carry: 3.0  3.01
        """
    )
    toy.add_points("counts: 3.9 3.9", parameters=0)
    return toy


def test_equal_results_of_different_seeds_are_said(with_equals):
    text = warnings(with_equals)
    assert "cut gate: different seeds have equal results; does it read its seed?" in text


def test_equal_results_of_points_are_said(with_equals):
    text = warnings(with_equals)
    assert "cut full have equal results; do they train the same?" in text
    assert "cut carry" in text


def test_equal_results_of_a_model_of_counts_are_not_said(with_equals):
    assert "counts: different" not in warnings(with_equals)


def test_points_that_share_their_runs_are_not_said_to_be_equal(with_equals):
    chosen = with_equals.study_json["chosen"]
    chosen["carry"] = chosen["full"]
    with_equals.write()
    assert "cut full have equal" not in warnings(with_equals)


def test_many_equal_results_are_counted(toy):
    for i in range(4):
        toy.add_point(f"gate{i}", [4.0 + i, 4.0 + i])
    assert "seed? WARNING: 1 more points or pairs have equal results" in warnings(toy)
