"""Points compared over seeds and sequences, from the files that runs keep."""

import json

import numpy as np
import pytest

from lmzoo.analysis.comparing import comparison
from lmzoo.analysis.load import load
from lmzoo.analysis.render import render
from lmzoo.analysis.seeds_by_sequences import crossed_difference
from lmzoo.cli.compare import report
from lmzoo.errors import UserError
from tests.analysis.synthetic import row

RNG = np.random.default_rng
N = 40
TOKENS = RNG(0).integers(3, 9, N)


def point(made, name, shift, *, seeds=(1, 2, 3), noise=0.05, seed=0):
    """A point whose confirm runs keep losses `shift` nats a token above a common difficulty."""
    hard = RNG(1).gamma(4, 0.5, N)
    luck = RNG(seed)
    rows = [(hard + shift + luck.normal(0, noise) + luck.normal(0, noise, N)) for _ in seeds]
    losses = [float((one * TOKENS).sum() / TOKENS.sum()) for one in rows]
    for run, one in zip(made.point(name, losses), rows, strict=True):
        made.keep(run, one * TOKENS, TOKENS)
    return np.stack(rows)


def compared(made, **options):
    return comparison(load(made.path), **options)


def test_the_difference_is_the_crossed_one(made):
    full = point(made, "full", 0.0, seed=2)
    worse = point(made, "worse", 0.3, seed=3)
    found = row(compared(made, metric="sentence"), "worse")
    expected = crossed_difference(worse, full)
    names = ("difference", "difference_low", "difference_high", "p_raw", "better")
    assert [found[name] for name in names] == pytest.approx([*expected[:5]], rel=1e-5)
    assert found["difference"] == pytest.approx(0.3, abs=0.1)
    assert (found["seeds"], found["sequences"], found["win_rate"]) == (3, N, 0.0)
    token = row(compared(made), "worse")
    assert token["difference"] != found["difference"]
    ours = load(made.path).events.collect()
    test = dict(ours.filter(event="test").select("run", "token").iter_rows())
    by_hand = np.mean([test[f"worse-confirm-{s}"] - test[f"full-confirm-{s}"] for s in (1, 2, 3)])
    assert token["difference"] == pytest.approx(by_hand, rel=1e-5)


def test_another_reference_turns_the_signs(made):
    point(made, "full", 0.0, seed=2)
    point(made, "worse", 0.3, seed=3)
    there = row(compared(made), "worse")
    back = row(compared(made, reference="cut worse"), "full")
    assert back["difference"] == pytest.approx(-there["difference"])
    assert back["better"] == pytest.approx(1 - there["better"])
    with pytest.raises(UserError, match="no point 'cut best' in 'toy'; there are: cut full, "):
        compared(made, reference="cut best")


def test_a_diverged_seed_is_a_lost_one(made):
    point(made, "full", 0.0, seed=2)
    runs = made.point("risky", [1.0, 1.0, None])
    for run in runs[:2]:
        made.keep(run, np.full(N, 0.5) * TOKENS, TOKENS)
    found = row(compared(made), "risky")
    assert (found["seeds"], found["paired"]) == (2, 3)
    assert found["win_rate"] == pytest.approx(2 / 3)
    assert found["rank_low"] is None  # it has not every seed of the reference


def test_what_diverged_behind_the_budget_has_not_lost(made):
    point(made, "full", 0.0, seed=2)
    point(made, "worse", 0.3, seed=3)
    for run in made.study["chosen"]["full"]["runs"]:
        with made.records(run).open("a") as file:
            end = {"event": "end", "epoch": made.epochs + 2, "status": "diverged", "reason": "nan"}
            file.write(json.dumps(end) + "\n")
    assert row(compared(made), "worse")["win_rate"] == 0.0


def test_runs_that_kept_nothing_have_no_difference(made):
    point(made, "full", 0.0, seed=2)
    made.point("old", [2.0, 2.0, 2.0])
    torn = made.point("torn", [2.0, 2.0, 2.0])
    for run in torn:
        (made.path / run / "test-3.npy").write_bytes(b"half a file")
    other = made.point("split", [2.0, 2.0, 2.0])
    for run in other:
        made.keep(run, np.ones(N - 1), np.ones(N - 1))
    frame = compared(made)
    for name in ("old", "torn", "split"):
        assert row(frame, name)["seeds"] == 0
        assert row(frame, name)["difference"] is None
    with pytest.raises(UserError, match="keeps no per-sequence test losses of its reference"):
        compared(made, reference="cut old")


def test_it_is_said_in_words(made):
    point(made, "full", 0.0, seed=2)
    point(made, "worse", 0.3, seed=3)
    folder = load(made.path)
    text = render(report(folder, comparison(folder)), "md")
    assert "| 1 | cut full | reference | — | — | — | — |" in text
    assert "0 of 3" in text
    assert "95 % intervals" in text
