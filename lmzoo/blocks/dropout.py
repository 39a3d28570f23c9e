r"""Dropout of sequences: one mask for all positions.

    m ~ Bernoulli(1 − p)^E,   y_t = x_t ⊙ m / (1 − p)          one m for each sequence

It acts in training only; the noise comes from torch's global generator, which the trainer seeds at
every epoch.

Gal & Ghahramani 2016 (arXiv:1512.05287).
"""

from jaxtyping import Float
from torch import Tensor, nn


def drop_features(x: Float[Tensor, "*N B T E"], rate: float) -> Float[Tensor, "*N B T E"]:
    """Multiply each sequence by one mask; the axes before B share it."""
    batch, _, width = x.shape[-3:]
    return x * nn.functional.dropout(x.new_ones(batch, 1, width), rate)
