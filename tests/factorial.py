"""Factorial designs of cuts."""

from itertools import product

import numpy as np

MGU = ("input_to_gate", "state_to_gate", "gate_bias", "input_to_candidate",
       "state_to_candidate", "candidate_bias", "carry", "write")  # fmt: skip
"""Position -> name of the cuts of the minimal gated unit."""


def mgu() -> np.ndarray:
    """Return the 92 valid and distinct patterns of the minimal gated unit."""
    valid = []
    for pattern in product([False, True], repeat=len(MGU)):
        cuts = set(np.flatnonzero(pattern))
        of_candidate = cuts & {3, 4, 5}
        writes_nothing = 7 in cuts or len(of_candidate) == 3
        equals_another = writes_nothing and of_candidate
        stays_zero = {6, 7} <= cuts
        ignores_its_input = 0 in cuts and cuts & {3, 7}
        if not (equals_another or stays_zero or ignores_its_input):
            valid.append(pattern)
    return np.array(valid)
