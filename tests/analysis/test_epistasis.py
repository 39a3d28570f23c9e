"""From a study's folder to effects: which switches, which mutants, what is said of them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lmzoo.analysis.heat_map import cells
from lmzoo.analysis.load import load
from lmzoo.analysis.mutants import read_mutants, thrown
from lmzoo.cli.epistasis import render_epistasis
from lmzoo.errors import UserError
from tests.analysis import factorial
from tests.analysis.factorial import mgu

ROOT = Path(__file__).parents[2]
PLANTED = {"input_to_gate": 0.3, "state_to_candidate": -0.2, "carry": 1.0}


def loss(cuts, seed):
    """Cutting 4 helps only where 0 is intact."""
    both = {"input_to_gate", "state_to_candidate"} <= set(cuts)
    return 3 + sum(PLANTED.get(c, 0) for c in cuts) + 0.25 * both + seed * (1 + 0.001 * len(cuts))


@pytest.fixture
def study(made):
    factorial.study(made, mgu(), loss)
    return made


def test_switches_are_what_differs_from_the_wild_type():
    wild = {"name": "mgru", "cuts": [], "keep": False, "gate": "raw", "heads": 4}
    other = {"name": "mgru", "cuts": ["carry"], "keep": True, "gate": "logit", "heads": 4}
    assert thrown(wild, wild) == frozenset()
    assert thrown(other, wild) == {"carry", "keep", "gate=logit"}
    assert thrown(wild, other) == {"cuts without carry", "keep=False", "gate=raw"}


def test_the_table_says_what_was_planted(study):
    rows = json.loads(render_epistasis(study.path, "json"))["rows"]
    found = {(row["first"], row["second"]): row for row in rows}
    pair = found["input_to_gate", "state_to_candidate"]
    assert np.isclose(pair["effect"], 0.25)
    assert np.isclose(pair["given_intact"], 0.301)
    assert np.isclose(pair["given_thrown"], 0.551)
    assert np.isclose(found["carry", None]["alone"], 1.001)
    assert np.isclose(found["carry", None]["regression"], 1.001)
    assert found["input_to_gate", "input_to_candidate"]["effect"] is None
    text = render_epistasis(study.path, width=200)
    assert "mgu: effects of 8 switches in 92 mutants" in text
    assert "input_to_gate × state_to_candidate" in text
    assert "switches alone explain" in text
    assert "no squares, so no interaction: input_to_gate × input_to_candidate" in text


def test_a_mutant_without_all_seeds_is_left_out_and_named(made):
    factorial.study(made, factorial.full(2), loss)
    made.point("torn", [3.0, None, 3.1], model={"cell": {"name": "mgu", "cuts": ["write"]}})
    (found,) = read_mutants(made.path, load(made.path), "token")
    assert len(found.labels) == 4
    assert found.left_out == ("cut torn",)
    assert "left out, as a seed is missing: cut torn" in render_epistasis(made.path)


def begin(made, name, cuts, *, tuned=True, **more):
    """A point whose setting is not chosen yet; `cell` says what a newer version notes."""
    if tuned:
        made.run(name, 9, 3.0, model={"name": "m", "cell": {"name": "mgu", "cuts": cuts}})
    made.study["points"].append({"id": name, "label": f"cut {name}", "aliases": [], **more})
    made.write()


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"tuned": True}, "mgu: its wild type, point 'cut start', is not confirmed yet with all 3"),
        (
            {"tuned": False, "cell": "mgu"},
            "mgu: its wild type, point 'cut start', is not confirmed",
        ),
        ({"tuned": False}, "mgu: its wild type may be point 'cut start', which has no run yet"),
    ],
    ids=["tuned", "noted", "unknown"],
)
def test_no_mutant_stands_in_for_a_wild_type_that_is_not_confirmed(made, known, words):
    begin(made, "start", [], **known)
    factorial.study(made, factorial.full(2)[1:], loss)
    with pytest.raises(UserError, match=words):
        render_epistasis(made.path)


def test_a_wild_type_that_lacks_a_seed_is_not_confirmed(made):
    made.point("start", [3.0, None, 3.1], model={"cell": {"name": "mgu", "cuts": []}})
    factorial.study(made, factorial.full(2)[1:], loss)
    with pytest.raises(UserError, match="its wild type, point 'cut start', is not confirmed"):
        render_epistasis(made.path)


@pytest.mark.parametrize("cell", [None, "mgru"])
def test_what_has_another_cell_or_none_is_no_wild_type(made, cell):
    begin(made, "other", [], tuned=False, cell=cell)
    factorial.study(made, factorial.full(2), loss)
    begin(made, "late", ["write"], tuned=False, cell="mgu")
    (found,) = read_mutants(made.path, load(made.path), "token")
    assert found.labels[0] == "cut wild type"
    assert found.left_out == ("cut late",)


def test_metrics_are_read_apart(study):
    token, sentence = (
        read_mutants(study.path, load(study.path), metric)[0].losses
        for metric in ("token", "sentence")
    )
    assert np.allclose(sentence, token / 2)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda made: made.point("b", [3.0], model={"name": "m"}), "no two mutants of a cell"),
        (lambda made: made.point("b", [3.0], model={"cell": {"name": "mgu", "cuts": []}}),
         "points 'cut a' and 'cut b' have the same cell"),
    ],
)  # fmt: skip
def test_what_has_no_effects_is_refused(made, spoil, words):
    made.point("a", [3.0], model={"name": "m", "cell": {"name": "mgu", "cuts": []}})
    spoil(made)
    with pytest.raises(UserError, match=words):
        render_epistasis(made.path)
    with pytest.raises(UserError, match="no metric 'word'"):
        render_epistasis(made.path, metric="word")


def test_the_map_has_a_square_for_each_known_effect_and_says_which_are_sure(study):
    from lmzoo.analysis.effects import effects

    frame = effects(read_mutants(study.path, load(study.path), "token")[0])
    squares = {(s["x"], s["y"]): s for s in cells(frame)}
    assert len(squares) == 8 + 2 * (28 - 6)
    assert squares["carry", "carry"]["text"] == "+1.00"
    assert squares["input_to_gate", "state_to_candidate"]["value"] == pytest.approx(0.25)
    assert squares["gate_bias", "gate_bias"]["text"] == "+0.00 ·"
    assert ("input_to_gate", "write") not in squares


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".html", b"<!DOCTYPE html>")])
def test_the_figure_is_written_and_needs_no_network(study, tmp_path, suffix, start):
    path = tmp_path / f"map{suffix}"
    render_epistasis(study.path, figure=path)
    written = path.read_bytes().lstrip()
    assert written.startswith(start)
    assert b"<script src=" not in written
    with pytest.raises(UserError, match=r"no figure format '\.pdf'"):
        render_epistasis(study.path, figure=tmp_path / "map.pdf")


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "analysis/epistasis.py", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
