r"""Dropout of sequences: one mask for all positions, or for the recurrent weights of a batch.

    m ~ Bernoulli(1 − p)^E,   y_t = x_t ⊙ m / (1 − p)          one m for each sequence
    M ~ Bernoulli(1 − p),     W' = W ⊙ M / (1 − p)             one M for each batch (DropConnect)
    r ~ Bernoulli(1 − p)^V,   e'_v = e_v r_v / (1 − p)         one r for each batch (embedding)

All positions of a sequence have the same mask. All act in training only; the noise comes from
torch's global generator, which the trainer seeds at every epoch.

Gal & Ghahramani 2016 (arXiv:1512.05287); Merity et al. 2018 (arXiv:1708.02182).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn


def drop_features(x: Float[Tensor, "*N B T E"], rate: float) -> Float[Tensor, "*N B T E"]:
    """Multiply each sequence by one mask; the axes before B share it."""
    batch, _, width = x.shape[-3:]
    return x * nn.functional.dropout(x.new_ones(batch, 1, width), rate)


def drop_rows(table: Float[Tensor, "V E"], rate: float) -> Float[Tensor, "V 1"]:
    """Return the factor of each row of a table: 0, or 1 / (1 − rate)."""
    return nn.functional.dropout(table.new_ones(len(table), 1), rate)


@contextmanager
def dropped_weights(
    modules: Iterable[nn.Module], names: Iterable[str], rate: float
) -> Iterator[None]:
    """Replace these weights of each module by W' inside the context; gradients reach W.

    With the rate 0, nothing is replaced and no noise is drawn.
    """
    slots: list[tuple[dict[str, Any], str, nn.Parameter]] = [
        (module._parameters, name, weight)
        for module in (modules if rate else ())
        for name in names
        if (weight := module._parameters[name]) is not None
    ]
    try:
        for owner, name, weight in slots:
            owner[name] = nn.functional.dropout(weight, rate)
        yield
    finally:
        for owner, name, weight in slots:
            owner[name] = weight
