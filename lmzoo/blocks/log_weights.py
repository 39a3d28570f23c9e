"""Mixing weights of a small mixture, and learned initial states with their mixture."""

from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.parameters import DrawnModule, Undecayed

Weighting = StrEnum("Weighting", "LEARNED UNIFORM")
"""Learned or uniform mixing weights."""


class LogWeights(DrawnModule):
    """Log P(k) = log softmax(logits), from U(1) as published; uniform ones have no parameters."""

    def __init__(self, count: int, weighting: Weighting = Weighting.LEARNED):
        super().__init__()
        if weighting is Weighting.LEARNED:
            self.set_drawn(1, logits=(count,))
        else:
            zeros = torch.zeros(count)
            # Constants: a checkpoint need not have them.
            self.register_buffer("logits", zeros, persistent=False)

    def forward(self) -> Float[Tensor, "K"]:
        """Return log P(k)."""
        return self.logits.log_softmax(0)


class InitialStates(DrawnModule):
    """W learned initial states and their mixing logits, from U(W) as published."""

    def __init__(self, count: int, width: int):
        super().__init__()
        self.set_drawn(count, Undecayed, vectors=(count, width))
        shape = None
        if count > 1:  # the weight of one state is 1
            shape = (count,)
        self.set_drawn(count, logits=shape)

    def log_weights(self) -> Float[Tensor, "W"]:
        """Return log ω, the log mixing weights."""
        if self.logits is None:
            # One state has all the weight: log 1.
            return self.vectors.new_zeros(1)
        return self.logits.log_softmax(0)
