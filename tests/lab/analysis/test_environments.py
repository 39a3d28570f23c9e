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
    toy.add_points(full=[3.0, 3.01])
    return toy


def warnings(toy) -> str:
    return " ".join(study_ranking(toy.path).warnings)


def test_a_point_of_another_environment_has_no_verdict_and_every_form_says_why(toy):
    toy.add_point("gate", [3.5, 3.51], environment={"torch": "3"})
    toy.add_point("carry", [3.5, 3.51])
    table = rank(toy)
    assert row(table, "gate")["verdict"] is None
    assert row(table, "gate")["probability_worse"] is None
    assert "apart" in row(table, "gate")["marks"]
    assert row(table, "carry")["verdict"]
    report = study_ranking(toy.path)
    forms = [name for name in (*FORMATS, "table") if name != "csv"]
    texts = [render(report, name).replace("\n", " ") for name in forms]
    texts += [csv_note(report), " ".join(report.warnings)]
    for text in texts:
        assert "2 of 6 runs were trained with torch 3, others with torch 2: cut gate" in text
        assert "not comparable: cut full with torch 2, cut gate with 3" in text


@pytest.mark.parametrize(
    ("program", "said"), [(None, ["torch"]), ("function", ["torch", "tiny", "LEVEL"])]
)
def test_what_can_change_a_number_is_said(toy, program, said):
    toy.add_point("gate", [3.5], environment=OLD, program=program)
    toy.add_point("carry", [3.5], environment={**NEW, "commit": "f00", "cpu": "x"}, program=program)
    text = warnings(toy)
    assert [name for name in ("torch", "tiny", "LEVEL", "commit", "cpu") if name in text] == said


def test_what_cannot_is_not(toy):
    quiet = {"torch": "2+cu1", "commit": "f00+", "threads": 9, "device": "H200"}
    toy.add_point("gate", [3.5], environment=quiet)
    assert "trained with" not in warnings(toy)


def test_points_that_share_a_value_are_compared(toy):
    """Half of the runs of each were trained after an upgrade."""
    toy.add_point("gate", [3.5, 3.51])
    path = toy.config_path("gate-confirm-2")
    path.write_bytes(json_bytes({**read_json(path), "environment": {"torch": "3"}}))
    assert row(rank(toy), "gate")["verdict"]
    assert "not comparable" not in warnings(toy)
    assert "1 of 4 runs" in warnings(toy)


def test_a_jump_of_all_points_is_said(toy):
    losses = [3.0, 3.001, 8.0, 8.001]
    toy.study_json["points"].clear()
    toy.study_json["chosen"].clear()
    toy.add_points(full=losses, gate=[x + 0.1 for x in losses])
    assert "all points change by +5 after the first 2 seeds" in warnings(toy)


def test_seeds_without_a_border_have_no_jump():
    """At most a share TINY, and seeds of few values, as an accuracy has, have none."""
    rng = np.random.default_rng(0)
    assert sum(jump(rng.normal(size=5))[1] < 0.01 for _ in range(1000)) < 15
    assert jump(np.array([0.9, 0.9, 0.9, 1.0]))[1] > TINY
    assert jump(np.zeros(0))[1] == 1.0


def test_equal_results_are_said_except_those_of_models_of_counts(toy):
    toy.add_points(gate=[3.5, 3.5], carry=[3.0, 3.01])
    toy.add_point("counts", [3.9, 3.9], parameters=0)
    text = warnings(toy)
    assert "cut gate: different seeds have equal results; does it read its seed?" in text
    assert "cut full have equal results; do they train the same?" in text
    assert "cut carry" in text
    assert "counts: different" not in text
    toy.study_json["chosen"]["carry"] = toy.study_json["chosen"]["full"]  # the same runs
    toy.write()
    assert "cut full have equal" not in warnings(toy)


def test_many_equal_results_are_counted(toy):
    for i in range(4):
        toy.add_point(f"gate{i}", [4.0 + i, 4.0 + i])
    assert "seed? WARNING: 1 more points or pairs have equal results" in warnings(toy)
