r"""An endless series of candidates: the level at which each may be kept.

    α_i = α γ_i (K_{i-1} + 1)        γ_i = c / (i (1 + ln i)²),  Σ γ_i = 1

A candidate is kept if its difference is on the good side and its two-sided p is below α_i. The
other half of the error is kept back for noise that is not normal.

K_{i-1} is the number of candidates kept before the i-th. This is LOND: the expected share of false
keeps among all keeps is at most α, after any number of candidates, if the p-values are independent
or positively dependent. While nothing improves, every keep is false, so that the probability of any
keep in the whole series is at most α = Σ α γ_i; this holds under any dependence (a union bound).

Candidates of one incumbent share its runs, so that a lucky incumbent makes all of them look worse:
their p-values are positively dependent. The winner of a comparison is a lucky one, so the next
candidates are compared with new runs of it, on seeds that nobody has used.

Javanmard and Montanari 2015 (arXiv:1502.06197); Zrnic, Ramdas and Jordan 2021 (JMLR 22:33).
"""

from collections.abc import Sequence
from math import log

from lmzoo.lab.statistics.compared import ERROR, Look

TOTAL = 1.6928
"""Upper bound of Σ 1 / (i (1 + ln i)²)."""


def keep_level(candidate: int, kept: int) -> float:
    """Return α_i, below which p of the i-th candidate must be; `kept` were kept before it."""
    share = 1 / (TOTAL * candidate * (1 + log(candidate)) ** 2)
    return ERROR * share * (kept + 1)


def keep_looks(looks: Sequence[Look], level: float) -> tuple[Look, ...]:
    """Return the looks with errors that sum to the level."""
    scale = level / sum(look.error for look in looks)
    return tuple(look._replace(error=scale * look.error) for look in looks)
