"""Mutants -> one row per switch and per pair of switches: a pure function.

    effect       mean change of the loss when the switch is thrown, over all pairs of mutants
    alone        the same in the wild type only
    interaction  what throwing the second adds to the effect of the first, over all squares
    given        the effect of the first where the second is intact, and where it is thrown
    regression   effect and interaction as the two-way least-squares model has them

A seed is a block: all mutants of one seed share the order of the data and every weight
they have in common, so each estimate is taken within each seed, and its interval is that
of a mean over seeds. Nothing is assumed of how losses of one seed vary together, and
what the model does not fit is not taken for noise. p is of a t-test over seeds, by Holm
over all effects and interactions of one cell.
"""

from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from lmzoo.analysis.contrasts import cubes, effect, effect_alone, effect_given, interaction
from lmzoo.analysis.mutants import Mutants
from lmzoo.analysis.regression import least_squares
from lmzoo.analysis.statistics import Array, holm, mean_interval, paired_difference

ESTIMATES = ("effect", "alone", "given_intact", "given_thrown", "regression")
COLUMNS = (
    *("cell", "first", "second", "count"),
    *(f"{name}{end}" for name in ESTIMATES for end in ("", "_low", "_high")),
    *("p_raw", "p"),
)
"""`second` is null of one switch; `effect` is the interaction of a pair."""


def effects(mutants: Mutants) -> pl.DataFrame:
    """All effects and interactions of one cell's switches; null where there is none."""
    model = least_squares(mutants.patterns)
    found = [_one(mutants, term) | {"regression": model[term]} for term in terms(mutants)]
    weights = {name: np.stack([row[name] for row in found]) for name in ESTIMATES}
    by_seed = {name: w @ mutants.losses for name, w in weights.items()}
    intervals = {name: mean_interval(values) for name, values in by_seed.items()}
    p = paired_difference(by_seed["effect"], 0.0).p
    columns: dict[str, Any] = {
        "cell": [mutants.cell] * len(found),
        "first": [mutants.switches[term[0]] for term in terms(mutants)],
        "second": [mutants.switches[t[1]] if len(t) == 2 else None for t in terms(mutants)],
        "count": [len(cubes(mutants.patterns, term)) for term in terms(mutants)],
        "p_raw": p,
        "p": holm(p),
    }
    for name, (mean, low, high) in intervals.items():
        columns |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return pl.DataFrame(columns).fill_nan(None).select(COLUMNS)


def terms(mutants: Mutants) -> list[tuple[int, ...]]:
    """(i,) of every switch, then (i, j) of every pair."""
    switches = range(len(mutants.switches))
    return [*((i,) for i in switches), *combinations(switches, 2)]


def _one(mutants: Mutants, term: tuple[int, ...]) -> dict[str, Array]:
    """The weights of one term's estimates."""
    patterns = mutants.patterns
    missing = np.full(len(patterns), np.nan)
    row = dict.fromkeys(ESTIMATES, missing)
    if len(term) == 1:
        return {**row, "effect": effect(patterns, *term), "alone": effect_alone(patterns, *term)}
    return {
        **row,
        "effect": interaction(patterns, *term),
        "given_intact": effect_given(patterns, *term, thrown=False),
        "given_thrown": effect_given(patterns, *term, thrown=True),
    }
