r"""RBF emission: a token is likely if its embedding is near the context.

    d_v² = ‖y − e(v)‖²
    P(v | y) = softmax_v( β exp(−d_v² / E) )        energy=rbf
             | softmax_v( −β d_v² )                 energy=squared
             | softmax_v( −β √(1 + d_v²) )          energy=root
             | softmax_v( −β log(1 + d_v²) )        energy=log

y and e(v) are (E), β > 0 is learned. An energy that grows with a distance differs from an inner
product as the Hamming emission does: agreement in one feature does not pay for a mismatch in
another. `rbf` is bounded, so a token costs at most β however far it is; `root` is the smooth L2
distance, `log` the kernel of Student's t. With `squared`, the kernel of a Gaussian,

    −β d_v² = 2β y·e(v) − β ‖e(v)‖² − β ‖y‖²

is a tied softmax with the bias −β ‖e(v)‖², and the logits have rank at most E + 2. The others have
no such bound. Every token is compared at every position, which takes (B, T, V) numbers.

Source: Broomhead & Lowe 1988 (radial basis functions); S1 (energies beside the Hamming distance).
"""

import math
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.types import Embeddings


class Energy(StrEnum):
    """How the squared distance gives the energy of a token."""

    RBF = "rbf"  # −exp(−d²/E), bounded
    SQUARED = "squared"  # d²
    ROOT = "root"  # √(1 + d²)
    LOG = "log"  # log(1 + d²)


@EMISSIONS("rbf")
class RBFEmission(Emission):
    """A token is likely if its embedding is near the context."""

    @config
    class Config:
        """The energy as a function of the distance."""

        energy: Energy = Energy.RBF

    def __init__(self, config: Any, width: int, norm: Norm) -> None:
        super().__init__(config, width, norm)
        self._width = width
        self.log_scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set β so that logits start with the slope of a tied softmax at d² = E."""
        slope = {
            Energy.RBF: math.exp(-1) / self._width,
            Energy.SQUARED: 1.0,
            Energy.ROOT: 0.5 / math.sqrt(1 + self._width),
            Energy.LOG: 1 / (1 + self._width),
        }[self.config.energy]
        nn.init.constant_(self.log_scale, -math.log(2 * slope))

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        dense = self.dense(y, table)
        index = targets.expand(dense.shape[:-1])[..., None]
        return dense.gather(-1, index)[..., 0]

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        return torch.log_softmax(self.logits(y, table), dim=-1)

    def logits(self, y: Float[Tensor, "*N E"], table: Embeddings) -> Float[Tensor, "*N V"]:
        """Return minus β times the energy of every token."""
        square = y.square().sum(-1, keepdim=True) + table.square().sum(-1)
        square = (square - 2 * y @ table.T).clamp_min(0)  # rounding may make it negative
        energy = {
            Energy.RBF: lambda: -(-square / self._width).exp(),
            Energy.SQUARED: lambda: square,
            Energy.ROOT: lambda: (1 + square).sqrt(),
            Energy.LOG: square.log1p,
        }[self.config.energy]()
        return -self.log_scale.exp() * energy
