r"""Vector emission: a softmax tied to the embeddings, without bias.

    P(v | y) = softmax_v( Emb y )

Source: S0.
"""

import torch
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.functional.tied_softmax import tied_log_prob


@EMISSIONS("vector")
class VectorEmission(Emission):
    """A logit is the inner product of the context with the token embedding.

    On the unit sphere (`norm=l2`) the inner products are bounded by ‖Emb_v‖, so the emission learns
    a temperature. Otherwise it has no parameters.
    """

    @config
    class Config:
        """No options."""

    log_scale: nn.Parameter | None

    def __init__(self, config: Config, width: int, norm: Norm):
        super().__init__(config, width, norm)
        log_scale = None
        if norm is Norm.L2:
            zero = torch.zeros(())
            log_scale = nn.Parameter(zero)
        self.register_parameter("log_scale", log_scale)
        self._start = width**0.5
        self.reset_parameters()

    def reset_parameters(self):
        """Set the temperature so that y starts with norm √E, as with `norm=rms`."""
        if self.log_scale is not None:
            start = torch.tensor(self._start).log()
            nn.init.constant_(self.log_scale, start.item())

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        words = targets.expand(y.shape[:-1])
        return tied_log_prob(self._scaled(y), table, words)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        logits = self._scaled(y) @ table.T
        return logits.log_softmax(-1)

    def _scaled(self, y: Tensor) -> Tensor:
        if self.log_scale is None:
            return y
        return y * self.log_scale.exp()
