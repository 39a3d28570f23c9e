"""Factorial designs of cuts."""

from itertools import combinations

import numpy as np

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
