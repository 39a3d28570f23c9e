"""From a study's folder to mutants, the effects of their switches, and heat maps."""

import json

import numpy as np
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.effects import estimate_effects, study_effects
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.mutants import read_mutants, switched_on
from lmzoo.lab.analysis.render import render
from lmzoo.lab.analysis.report.heat_map import heat_map_squares
from tests.lab.analysis.factorial import add_mutants, full, mgu

PLANTED = {"input_to_gate": 0.3, "state_to_candidate": -0.2, "carry": 1.0}


def loss(cuts, seed):
    """Cuts of input_to_gate and state_to_candidate together add 0.25."""
    pair = {"input_to_gate", "state_to_candidate"} <= set(cuts)
    return 3 + sum(PLANTED.get(c, 0) for c in cuts) + 0.25 * pair + seed * (1 + 0.001 * len(cuts))


@pytest.fixture
def study(toy):
    add_mutants(toy, mgu(), loss)
    return toy


def test_switches_are_the_differences_from_the_wild_type():
    wild = {"name": "mgru", "cuts": [], "keep": False, "gate": "raw", "heads": 4}
    other = {"name": "mgru", "cuts": ["carry"], "keep": True, "gate": "logit", "heads": 4}
    assert switched_on(wild, wild) == frozenset()
    assert switched_on(other, wild) == {"carry", "keep", "gate=logit"}
    assert switched_on(wild, other) == {"cuts without carry", "keep=False", "gate=raw"}


def test_the_table_has_the_planted_effects(study):
    rows = json.loads(render(study_effects(study.path), "json"))["rows"]
    effects = {(row["first"], row["second"]): row for row in rows}
    pair = effects["input_to_gate", "state_to_candidate"]
    assert np.isclose(pair["effect"], 0.25)
    assert np.isclose(pair["given_intact"], 0.301)
    assert np.isclose(pair["given_thrown"], 0.551)
    assert np.isclose(effects["carry", None]["alone"], 1.001)
    assert effects["input_to_gate", "input_to_candidate"]["effect"] is None
    text = render(study_effects(study.path), "table", width=200)
    assert "mgu: effects of 8 switches in 92 mutants" in text
    assert "input_to_gate × state_to_candidate" in text
    assert "no squares, so no interaction: input_to_gate × input_to_candidate" in text


def test_a_mutant_that_lacks_a_seed_is_left_out_and_listed(toy):
    add_mutants(toy, full(2), loss)
    toy.add_point("partial", [3.0, None, 3.1], model={"cell": {"name": "mgu", "cuts": ["write"]}})
    (mutants,) = read_mutants(toy.path, load_study(toy.path), "token")
    assert len(mutants.labels) == 4
    assert mutants.incomplete == ("cut partial",)
    assert "left out, a seed is missing: cut partial" in render(study_effects(toy.path), "table")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cell": "mgu"}, "mgu: its wild type, point 'cut start', is not confirmed yet with all 3"),
        ({}, "the reference 'cut start' is not confirmed yet"),
    ],
)
def test_an_unconfirmed_wild_type_is_refused(toy, fields, message):
    add_mutants(toy, full(2)[1:], loss)
    add_unconfirmed(toy, "start", **fields)
    toy.study_json["reference"] = "start"
    with pytest.raises(UserError, match=message):
        study_effects(toy.write())


def add_unconfirmed(toy, name, **fields):
    """Add a point without a run; `fields` are further fields of its `study.json`."""
    toy.study_json["points"].append({"id": name, "label": f"cut {name}", "aliases": [], **fields})
    toy.write()


def test_a_point_with_another_cell_or_none_is_not_the_wild_type(toy):
    add_unconfirmed(toy, "other", cell="mgru")
    add_unconfirmed(toy, "none", cell=None)
    add_mutants(toy, full(2), loss)
    add_unconfirmed(toy, "late", cell="mgu")
    (mutants,) = read_mutants(toy.path, load_study(toy.path), "token")
    assert mutants.labels[0] == "cut wild type"
    assert mutants.incomplete == ("cut late",)


@pytest.mark.parametrize(
    ("add_second", "message"),
    [
        (lambda toy: toy.add_point("b", [3.0], model={"name": "m"}), "no two mutants of a cell"),
        (lambda toy: toy.add_point("b", [3.0], model={"cell": {"name": "mgu", "cuts": []}}),
         "points 'cut a' and 'cut b' have the same cell"),
    ],
)  # fmt: skip
def test_a_study_without_two_mutants_is_refused(toy, add_second, message):
    toy.add_point("a", [3.0], model={"name": "m", "cell": {"name": "mgu", "cuts": []}})
    add_second(toy)
    with pytest.raises(UserError, match=message):
        study_effects(toy.path)
    with pytest.raises(UserError, match="no unit 'word'"):
        study_effects(toy.path, unit="word")


def test_the_heat_map_has_a_square_for_each_effect_and_marks_uncertain_ones(study):
    frame = estimate_effects(read_mutants(study.path, load_study(study.path), "token")[0])
    squares = {(s["x"], s["y"]): s for s in heat_map_squares(frame)}
    assert len(squares) == 8 + 2 * (28 - 6)
    assert squares["carry", "carry"]["text"] == "+1.00"
    assert squares["input_to_gate", "state_to_candidate"]["value"] == pytest.approx(0.25)
    assert squares["gate_bias", "gate_bias"]["text"] == "(+0.00)"
    assert ("input_to_gate", "write") not in squares


def test_the_figure_is_one_file(study, tmp_path):
    path = tmp_path / "map.svg"
    study_effects(study.path, figure=path)
    written = path.read_text("utf-8")
    assert written.startswith("<svg")
    assert "state_to_candidate" in written
    with pytest.raises(UserError, match=r"no figure format '\.pdf'"):
        study_effects(study.path, figure=tmp_path / "map.pdf")
