"""Contrasts find planted effects; intervals are scipy's; tables and squares have their numbers."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from epistasis import Mutants, contrasts, cubes, estimates, read_mutants, squares, study_epistasis
from scipy import stats

from lmzoo.lab.analysis.render import render
from lmzoo.lab.statistics.contrasts import holm
from tests.factorial import MGU, full, mgu

RNG = np.random.default_rng
PLANTED = {"input_to_gate": 0.3, "state_to_candidate": -0.2, "carry": 1.0}


def mutants(patterns, losses):
    """Return mutants whose cuts are called a, b, c, ..."""
    names = tuple("abcdefgh"[: patterns.shape[1]])
    return Mutants("toy", names, tuple(map(str, range(len(patterns)))), patterns, losses)


def noisy(patterns, rng, seeds, *, shared=0.5, own=0.05):
    """Return losses with noise of a seed, of a cut within a seed, and of a single run."""
    noise = rng.normal(0, shared, seeds) + patterns @ rng.normal(0, own, (patterns.shape[1], seeds))
    return 3 + noise + rng.normal(0, own, (len(patterns), seeds))


@pytest.mark.parametrize("design", [full(5), mgu()], ids=["full", "mgu"])
def test_planted_effects_are_estimated_exactly(design):
    patterns = RNG(1).permutation(design)
    cuts, rng = patterns.shape[1], RNG(2)
    own, pairs = rng.normal(size=cuts), np.triu(rng.normal(size=(cuts, cuts)), 1)
    x = patterns.astype(float)
    y = x @ own + np.einsum("pi,ij,pj->p", x, pairs, x)
    index = {tuple(pattern) for pattern in patterns.astype(int)}
    for i in range(cuts):
        bases = [p for p in index if p[i] == 0 and (*p[:i], 1, *p[i + 1 :]) in index]
        mean = np.mean([own[i] + (pairs + pairs.T)[i] @ base for base in bases])
        found = contrasts(patterns, (i,))
        assert np.isclose(found["effect"] @ y, mean)
        assert np.isclose(found["alone"] @ y, own[i])
    for i, j in combinations(range(cuts), 2):
        found = contrasts(patterns, (i, j))
        if len(cubes(patterns, (i, j))):
            assert np.isclose(found["effect"] @ y, pairs[i, j])
            assert np.isclose((found["given_thrown"] - found["given_intact"]) @ y, pairs[i, j])
        else:
            assert np.isnan(found["effect"]).all()


def test_intervals_and_p_equal_scipys_test_over_seeds():
    patterns = full(2)
    y = noisy(patterns, RNG(0), 4)
    frame = estimates(mutants(patterns, y))
    (row,) = frame.filter(first="a", second="b").to_dicts()
    wild, a, b, both = y
    test: Any = stats.ttest_1samp(both - a - b + wild, 0)
    interval = test.confidence_interval(0.95)
    result = [row[c] for c in ("effect_low", "effect_high", "p_raw")]
    assert np.allclose(result, [interval.low, interval.high, test.pvalue])
    alone = stats.ttest_rel(a, wild).confidence_interval(0.95)
    assert np.allclose([row["given_intact_low"], row["given_intact_high"]], [alone.low, alone.high])
    assert np.allclose(frame["p"], holm(frame["p_raw"].to_numpy()))


def test_the_tables_and_the_squares_have_the_planted_effects(toy):
    """Cuts of input_to_gate and state_to_candidate together add 0.25; one mutant lacks a seed."""
    for pattern in mgu():
        cuts = [name for name, on in zip(MGU, pattern, strict=True) if on]
        loss = 3 + sum(PLANTED.get(cut, 0) for cut in cuts)
        loss += 0.25 * ({"input_to_gate", "state_to_candidate"} <= {*cuts})
        losses = [loss + seed * (1 + 0.001 * len(cuts)) for seed in range(3)]
        model = {"name": "m", "cell": {"name": "mgu", "cuts": cuts}}
        toy.add_point(",".join(cuts) or "wild type", losses, model=model)
    other = {"name": "m", "cell": {"name": "mgu", "cuts": [*MGU]}}
    toy.add_point("partial", [3.0, None, 3.1], model=other)
    toy.add_point("another cell", [3.0] * 3, model={"name": "m", "cell": {"name": "mgru"}})
    toy.study_json["reference"] = "wild type"
    report = study_epistasis(toy.write())
    rows = {(row["first"], row["second"]): row for row in report.frame.to_dicts()}
    pair = rows["input_to_gate", "state_to_candidate"]
    known = [pair[name] for name in ("effect", "given_intact", "given_thrown")]
    assert np.allclose(known, [0.25, 0.301, 0.551])
    assert np.isclose(rows["carry", None]["alone"], 1.001)
    assert rows["input_to_gate", "input_to_candidate"]["effect"] is None
    text = render(report, "table", width=200)
    for line in (
        "mgu: effects of 8 switches in 92 mutants",
        "input_to_gate × state_to_candidate",
        "no squares, so no interaction: input_to_gate × input_to_candidate",
    ):
        assert line in text
    assert read_mutants(str(toy.path)).labels[0] == "cut wild type"
    shown = {(s["x"], s["y"]): s for s in squares(report.frame)}
    assert len(shown) == 8 + 2 * (28 - 6)
    assert shown["carry", "carry"]["text"] == "+1.00"
    assert shown["gate_bias", "gate_bias"]["text"] == "(0.00)"
    assert ("input_to_gate", "write") not in shown
