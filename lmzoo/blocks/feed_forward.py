r"""The feed-forward part of a Transformer layer, the same at every position.

    FF(x) = W_2 f(W_1 x + b_1) + b_2        f = ReLU, or GELU in its tanh form

Vaswani et al. 2017 (arXiv:1706.03762), 3.3.
"""

from enum import StrEnum

from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.linear import Linear


class Activation(StrEnum):
    """What stands between the two maps."""

    RELU = "relu"
    GELU = "gelu"


class FeedForward(nn.Module):
    """Two affine maps with an activation between."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation,
        *,
        spread: float | None = None,
        output_spread: float | None = None,
    ) -> None:
        super().__init__()
        self.expand = Linear(width, hidden, spread)
        self.activate = nn.ReLU() if activation is Activation.RELU else nn.GELU("tanh")
        self.contract = Linear(hidden, width, output_spread or spread)

    def forward(self, x: Float[Tensor, "*N E"]) -> Float[Tensor, "*N E"]:
        return self.contract(self.activate(self.expand(x)))
