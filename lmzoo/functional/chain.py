r"""Chains: forward sums over paths z_1 -> z_2 -> ... -> z_N.

    α_1(j) = start_j
    α_n(j) = plus_i α_{n-1}(i) times step_n[i, j]

In SUM, with rows of each step summing to one, α_n is the marginal of z_n; in LOG its
logarithm; in MAX the score of the best path that ends in j.

Rabiner 1989.
"""

from collections.abc import Iterable, Iterator

from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.semiring import Semiring


def chain(
    start: Float[Tensor, "*N K"], steps: Iterable[Float[Tensor, "*N K K"]], semiring: Semiring
) -> Iterator[Float[Tensor, "*N K"]]:
    """α_1, α_2, ..., each as soon as its step is known."""
    alpha = start
    yield alpha
    for step in steps:
        alpha = semiring.matmul(alpha[..., None, :], step)[..., 0, :]
        yield alpha
