r"""The position-wise feed-forward part of a Transformer layer.

    FF(x) = W_2 f(W_1 x + b_1) + b_2        f = ReLU, or the tanh approximation of GELU

Vaswani et al. 2017 (arXiv:1706.03762), section 3.3.
"""

from enum import StrEnum

from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.layers import Linear

Activation = StrEnum("Activation", "RELU GELU")
"""The nonlinearity between the two linear layers."""


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation,
        *,
        std: float | None = None,
        output_std: float | None = None,
    ) -> None:
        super().__init__()
        self.expand = Linear(width, hidden, std)
        self.activate = nn.ReLU() if activation is Activation.RELU else nn.GELU("tanh")
        self.contract = Linear(hidden, width, output_std or std)

    def forward(self, x: Float[Tensor, "*N E"]) -> Float[Tensor, "*N E"]:
        return self.contract(self.activate(self.expand(x)))
