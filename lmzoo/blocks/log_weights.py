"""Mixing weights of a small mixture: learned or uniform."""

from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
