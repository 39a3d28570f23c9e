"""Mixing weights of a small mixture, and learned initial states with their mixture."""

from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.functional.decay import Undecayed
from lmzoo.functional.initialisers import draw_uniform

Weighting = StrEnum("Weighting", "LEARNED UNIFORM")
"""Learned or uniform mixing weights."""


class LogWeights(nn.Module):
    """Log P(k) = log softmax(logits); uniform weights have no parameters."""

    logits: Tensor

    def __init__(self, count: int, weighting: Weighting = Weighting.LEARNED) -> None:
        super().__init__()
        self.learned = weighting is Weighting.LEARNED
        if self.learned:
            self.logits = nn.Parameter(torch.empty(count))
        else:
            self.register_buffer("logits", torch.zeros(count), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw learned logits from U(1), as published."""
        if self.learned:
            draw_uniform(self.logits, 1)

    def forward(self) -> Float[Tensor, "K"]:
        """Return log P(k)."""
        return torch.log_softmax(self.logits, dim=0)


class InitialStates(nn.Module):
    """W learned initial states and their mixing logits."""

    logits: nn.Parameter | None

    def __init__(self, count: int, width: int, spare: int = 0) -> None:
        """`spare` columns have no place in the state."""
        super().__init__()
        self.unused = count * spare
        self.vectors = Undecayed(torch.empty(count, width))
        self.register_parameter("logits", nn.Parameter(torch.empty(count)) if count > 1 else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw vectors and logits from U(W), as published."""
        count = len(self.vectors)
        draw_uniform(self.vectors, count)
        if self.logits is not None:
            draw_uniform(self.logits, count)

    def log_weights(self) -> Float[Tensor, "W"]:
        """Return log ω, the log mixing weights."""
        if self.logits is None:
            return self.vectors.new_zeros(1)
        return torch.log_softmax(self.logits, dim=0)
