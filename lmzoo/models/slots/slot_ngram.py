r"""Mean-field slot n-gram: a window whose places are soft pointers.

    p_n(j | t) = softmax_{j<t}( Λ_n[t, j] + (B ê_j)_n )
    P(z_t | s_<t) = softmax( A [b_{1,t}; ..; b_{N,t}] )

Λ prefers places, B prefers words. B has no bias, since it would cancel.

S0 DLM30.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.draw import uniform
from lmzoo.models.slots.base import SlotConfig, SlotModel
from lmzoo.models.slots.pointers import lag_pointer


@model("slot_ngram", aliases=("DLM30",), family="slot", document="S0", source="S0")
class SlotNgram(SlotModel):
    """N independent soft pointers to earlier tokens, mixture emission."""

    @config
    class Config(SlotConfig):
        """The sizes."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task, gate_width=config.slots * config.width)
        self.lags = nn.Parameter(torch.empty(config.slots, task.length - 1, task.length - 1))
        self.appeal = nn.Linear(config.width, config.slots, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Λ from U(T)."""
        with torch.no_grad():
            self.lags.copy_(uniform(tuple(self.lags.shape), self.task.length))

    def pointers(self, tokens: Tensor, seen: Tensor) -> Tensor:
        size = tokens.shape[1]
        return lag_pointer(self.lags[:, :size, :size], self.appeal(seen).mT)

    def prior(self) -> Float[Tensor, "N S S"]:
        """Log softmax_{j<t} Λ_n[t, j]: where the slots point before they see words."""
        places = self.lags.new_zeros(self.lags.shape[:2])
        return lag_pointer(self.lags, places).log().mT
