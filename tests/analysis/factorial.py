"""A factorial study's folder whose losses a test plants."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from lmzoo.analysis.mutants import Mutants
from tests.analysis.synthetic import Made

MGU = ("input_to_gate", "state_to_gate", "gate_bias", "input_to_candidate",
       "state_to_candidate", "candidate_bias", "carry", "write")  # fmt: skip


def full(switches: int) -> np.ndarray:
    """All patterns, the fewest thrown first."""
    sets = [c for n in range(switches + 1) for c in combinations(range(switches), n)]
    return np.array([[i in c for i in range(switches)] for c in sets])


def mgu() -> np.ndarray:
    """The 92 patterns of the minimal gated unit, written down once more from the predicates."""
    kept = []
    for pattern in full(8):
        m = set(np.flatnonzero(pattern))
        if {3, 4, 5} <= m or (7 in m and m & {3, 4, 5}):  # another name of a mutant without write
            continue
        if {6, 7} <= m or (0 in m and m & {3, 7}):  # zero, or blind
            continue
        kept.append(pattern)
    return np.array(kept)


def mutants(patterns: np.ndarray, losses: np.ndarray) -> Mutants:
    names = tuple("abcdefgh"[: patterns.shape[1]])
    labels = tuple("".join(n for n, t in zip(names, p, strict=True) if t) for p in patterns)
    return Mutants("toy", names, labels, patterns, losses, ())


def study(made: Made, patterns: Sequence[Sequence[bool]], losses: Callable, seeds: int = 3) -> None:
    """Points of a study whose cell is the MGU with these cuts."""
    for pattern in patterns:
        cuts = [name for name, t in zip(MGU, pattern, strict=False) if t]
        model = {"name": "m", "cell": {"name": "mgu", "cuts": cuts}}
        values = [losses(cuts, seed) for seed in range(seeds)]
        made.point(",".join(cuts) or "wild type", values, model=model)
