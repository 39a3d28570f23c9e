"""The contract of an emission: score the targets, or the whole vocabulary."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.functional.normalise import Norm
from lmzoo.registry import Registry
from lmzoo.types import Embeddings


class Emission(nn.Module, ABC):
    """P(v | y) for a context vector y, tied to the token embeddings.

    The embedding table belongs to the model and is handed in, so that a head owns only
    what is its own. Leading axes of `y` (initial states) broadcast against the targets.
    """

    name: ClassVar[str]
    Config: ClassVar[type]

    latent: ClassVar[str] = ""
    """What is summed out for each token; '' if nothing is, and then there is no `joint`."""

    def __init__(self, config: Any, width: int, norm: Norm) -> None:
        super().__init__()
        self.config = config
        self.norm = norm

    @abstractmethod
    def log_prob(
        self, y: Float[Tensor, "*W B T E"], targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "*W B T"]:
        """Log P(target | y), without a score for every word at every position."""

    @abstractmethod
    def dense(self, y: Float[Tensor, "*N E"], table: Embeddings) -> Float[Tensor, "*N V"]:
        """Log P(v | y) for every v."""

    def joint(
        self, y: Float[Tensor, "*W B T E"], targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "*W B T K"]:
        """Log P(z, target | y), of emissions with a `latent`."""
        raise NotImplementedError(f"emission {self.name} has no latent")


EMISSIONS: Registry[type[Emission]] = Registry("emission")
