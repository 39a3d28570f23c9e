"""Learned initial states of a recurrence; `functional/initial_states.py` mixes over them."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.functional.initialisers import draw_uniform


class InitialStates(nn.Module):
    """W learned initial states and their mixing logits."""

    logits: nn.Parameter | None

    def __init__(self, count: int, width: int, spare: int = 0) -> None:
        """`spare` columns have no place in the state."""
        super().__init__()
        self.unused = count * spare
        self.vectors = nn.Parameter(torch.empty(count, width))
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
