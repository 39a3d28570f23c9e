"""Factorial designs and studies with planted losses."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from lmzoo.lab.analysis.mutants import Mutants
from tests.lab.analysis.toy_study import ToyStudy

MGU = ("input_to_gate", "state_to_gate", "gate_bias", "input_to_candidate",
       "state_to_candidate", "candidate_bias", "carry", "write")  # fmt: skip
"""Position -> name of the cuts of the minimal gated unit."""


def full(switches: int) -> np.ndarray:
    """Return all patterns, those with the fewest switches on first."""
    sets = [c for n in range(switches + 1) for c in combinations(range(switches), n)]
    return np.array([[i in c for i in range(switches)] for c in sets])


def mgu() -> np.ndarray:
    """Return the 92 valid and distinct patterns of the minimal gated unit."""
    valid = []
    for pattern in full(8):
        cuts = set(np.flatnonzero(pattern))
        if {3, 4, 5} <= cuts or (7 in cuts and cuts & {3, 4, 5}):  # equals a mutant without write
            continue
        if {6, 7} <= cuts or (0 in cuts and cuts & {3, 7}):  # zero, or ignores its input
            continue
        valid.append(pattern)
    return np.array(valid)


def mutants(patterns: np.ndarray, losses: np.ndarray) -> Mutants:
    """Return mutants whose switches are called a, b, c, ..."""
    names = tuple("abcdefgh"[: patterns.shape[1]])
    labels = tuple("".join(n for n, on in zip(names, p, strict=True) if on) for p in patterns)
    return Mutants("toy", names, labels, patterns, losses, np.zeros(len(patterns)), ())


def add_mutants(
    toy: ToyStudy, patterns: Sequence[Sequence[bool]], losses: Callable, seeds: int = 3
) -> None:
    """Add a point with these cuts of the MGU for each pattern; `losses(cuts, seed)` is its loss."""
    for pattern in patterns:
        cuts = [name for name, on in zip(MGU, pattern, strict=False) if on]
        model = {"name": "m", "cell": {"name": "mgu", "cuts": cuts}}
        values = [losses(cuts, seed) for seed in range(seeds)]
        toy.add_point(",".join(cuts) or "wild type", values, model=model)
