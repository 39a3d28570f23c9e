r"""The two-way model of a design with holes, by least squares in ±1 coding.

    y = β_0 + Σ_i β_i z_i + Σ_{i<j} β_ij z_i z_j        z_i = +1 where switch i is thrown, else −1

    interaction  4 β_ij
    effect       2 (β_i + Σ_j β_ij z̄_j)      z̄ = mean of z over the pairs of i

A product z_i z_j is a column where all four settings of the two occur; where one is
missing it would repeat the columns of 1, z_i and z_j. What the design cannot tell apart
is NaN. ±1 coding puts β_i at z = 0, which lies outside a design with holes (halfway
between two cuts that are never made together, nothing whole is left), so effects are
taken where pairs of mutants are.

The estimates are linear in y: rows of weights, as of `contrasts.py`. They use all mutants
where contrasts use complete squares, but assume that no three switches interact.
"""

from itertools import combinations

import numpy as np

from lmzoo.analysis.contrasts import Patterns, cubes
from lmzoo.analysis.statistics import Array

Terms = list[tuple[int, ...]]
"""(): the constant; (i,): a switch; (i, j): a product."""


def least_squares(patterns: Patterns) -> dict[tuple[int, ...], Array]:
    """Term -> weights (P,) of the losses that make its estimate, for all effects and products."""
    terms = model_terms(patterns)
    X = design_matrix(patterns, terms)
    inverse = np.linalg.pinv(X)  # β = inverse @ y
    seen = inverse @ X  # identity where coefficients can be told apart
    switches = range(patterns.shape[1])
    found = {}
    for term in [*((i,) for i in switches), *combinations(switches, 2)]:
        wanted = _wanted(patterns, terms, term)
        estimable = wanted.any() and np.allclose(wanted @ seen, wanted, atol=1e-8)
        found[term] = wanted @ inverse if estimable else np.full(len(patterns), np.nan)
    return found


def explained(patterns: Patterns, losses: Array, *, pairs: bool) -> float:
    """Share of the variance between mutants (P,) that the model explains; NaN if there is none."""
    terms = [t for t in model_terms(patterns) if pairs or len(t) < 2]
    X = design_matrix(patterns, terms)
    away = losses - losses.mean()
    left = losses - X @ (np.linalg.pinv(X) @ losses)
    total = float(away @ away)
    return 1 - float(left @ left) / total if total > 0 else float("nan")


def model_terms(patterns: Patterns) -> Terms:
    """The constant, all switches, and the products all of whose settings occur."""
    switches = range(patterns.shape[1])
    whole = [
        pair
        for pair in combinations(switches, 2)
        if len(np.unique(patterns[:, list(pair)], axis=0)) == 4
    ]
    return [(), *((i,) for i in switches), *whole]


def design_matrix(patterns: Patterns, terms: Terms) -> Array:
    """A column for each term: the product of its switches' z."""
    z = np.where(patterns, 1.0, -1.0)
    return np.stack([z[:, list(term)].prod(1) for term in terms], axis=1)


def _wanted(patterns: Patterns, terms: Terms, term: tuple[int, ...]) -> Array:
    """What of the coefficients makes the estimate; all zero if nothing does."""
    wanted = np.zeros(len(terms))
    pairs = cubes(patterns, term) if len(term) == 1 else None
    if pairs is None:
        wanted[[t == term for t in terms]] = 4.0
    elif len(pairs):
        (i,) = term
        mean = np.where(patterns[pairs], 1.0, -1.0).mean((0, 1))
        for place, t in enumerate(terms):
            if i in t:
                wanted[place] = 2.0 * np.prod([mean[j] for j in t if j != i])
    return wanted
