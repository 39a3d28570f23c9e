r"""The two-way model of a design with missing mutants, by least squares in ±1 coding.

    y = β_0 + Σ_i β_i z_i + Σ_{i<j} β_ij z_i z_j        z_i = +1 where switch i is on, else −1

    interaction  4 β_ij
    effect       2 (β_i + Σ_j β_ij z̄_j)      z̄ = mean of z over the pairs of i

A product z_i z_j is a column of the model if all four settings of the two switches occur. If one is
missing, the product would be a combination of the columns of 1, z_i and z_j. An estimate that the
design cannot identify is NaN. In ±1 coding, β_i is the effect at z = 0, which a design with missing
mutants does not contain (halfway between two cuts that are never made together). So effects are
evaluated at the mean z̄ of the existing pairs.

The estimates are linear in y: weights of the losses, as in `contrasts.py`. They use all mutants,
where contrasts use complete squares only, but assume no three-way interaction.
"""

from itertools import combinations

import numpy as np

from lmzoo.lab.statistics.factorial import Patterns, cubes
from lmzoo.lab.statistics.intervals import Array

Terms = list[tuple[int, ...]]
"""(): the constant; (i,): a switch; (i, j): a product."""


def least_squares(patterns: Patterns) -> dict[tuple[int, ...], Array]:
    """Return term -> weights (P,) of its estimate, for all effects and interactions."""
    terms = model_terms(patterns)
    X = design_matrix(patterns, terms)
    inverse = np.linalg.pinv(X)  # β = inverse @ y
    resolution = inverse @ X  # the identity where coefficients are identifiable
    switches = range(patterns.shape[1])
    weights = {}
    for term in [*((i,) for i in switches), *combinations(switches, 2)]:
        combination = _combination(patterns, terms, term)
        identifiable = combination.any() and np.allclose(
            combination @ resolution, combination, atol=1e-8
        )
        weights[term] = combination @ inverse if identifiable else np.full(len(patterns), np.nan)
    return weights


def explained(patterns: Patterns, losses: Array, *, pairs: bool) -> float:
    """Return the share of the variance of the losses (P,) that the model explains.

    The share is NaN if the losses do not vary. Without `pairs`, the model has no products.
    """
    terms = [t for t in model_terms(patterns) if pairs or len(t) < 2]
    X = design_matrix(patterns, terms)
    deviations = losses - losses.mean()
    residuals = losses - X @ (np.linalg.pinv(X) @ losses)
    total = float(deviations @ deviations)
    return 1 - float(residuals @ residuals) / total if total > 0 else float("nan")


def model_terms(patterns: Patterns) -> Terms:
    """Return the constant, all switches, and the products all of whose settings occur."""
    switches = range(patterns.shape[1])
    products = [
        pair
        for pair in combinations(switches, 2)
        if len(np.unique(patterns[:, list(pair)], axis=0)) == 4
    ]
    return [(), *((i,) for i in switches), *products]


def design_matrix(patterns: Patterns, terms: Terms) -> Array:
    """Return one column (P,) for each term: the product of the z of its switches."""
    z = np.where(patterns, 1.0, -1.0)
    return np.stack([z[:, list(term)].prod(1) for term in terms], axis=1)


def _combination(patterns: Patterns, terms: Terms, term: tuple[int, ...]) -> Array:
    """Return the factors of the coefficients in the estimate of a term; zero if it has none."""
    factors = np.zeros(len(terms))
    pairs = cubes(patterns, term) if len(term) == 1 else None
    if pairs is None:
        factors[[t == term for t in terms]] = 4.0
    elif len(pairs):
        (i,) = term
        mean = np.where(patterns[pairs], 1.0, -1.0).mean((0, 1))
        for index, t in enumerate(terms):
            if i in t:
                factors[index] = 2.0 * np.prod([mean[j] for j in t if j != i])
    return factors
