r"""Vector emission: a softmax tied to the embeddings, without bias.

    P(v | y) = softmax_v( Emb y )

S0; zoo.md 1.4.
"""

import torch
from torch import Tensor, nn

from lmzoo.catalogue import technique
from lmzoo.config import config
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.functional.normalise import Norm

technique(
    "vector_emission",
    family="emission",
    document="S0",
    source="Press & Wolf 2017 (arXiv:1608.05859); S0",
    summary="A softmax tied to the embeddings, without bias (model.emission=vector).",
)


@EMISSIONS("vector")
class VectorEmission(Emission):
    """One inner product per word.

    On the literal unit sphere (`norm=l2`) inner products are bounded by ‖Emb_v‖, so the
    head then learns a temperature; elsewhere it has no parameters.
    """

    @config
    class Config:
        """Nothing to choose."""

    log_scale: nn.Parameter | None

    def __init__(self, config: Config, width: int, norm: Norm) -> None:
        super().__init__(config, width, norm)
        scaled = norm is Norm.L2
        self.register_parameter("log_scale", nn.Parameter(torch.zeros(())) if scaled else None)
        self._start = width**0.5
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The temperature starts where y has norm √E, as under `rms`."""
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, torch.tensor(self._start).log().item())

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        y = self._scaled(y)
        chosen = (y * table[targets]).sum(-1)
        return chosen - log_normalisers(y, table)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        return torch.log_softmax(self._scaled(y) @ table.T, dim=-1)

    def _scaled(self, y: Tensor) -> Tensor:
        return y if self.log_scale is None else y * self.log_scale.exp()
