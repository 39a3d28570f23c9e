"""The contract of an emission: score the targets, or every token of the vocabulary."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.registry import Registry
from lmzoo.base.search_space import IntRange
from lmzoo.functional.normalise import Norm
from lmzoo.types import Embeddings, StepTokens, Tokens, Vectors


class Emission(nn.Module, ABC):
    """P(v | y) for a context vector y, tied to the token embeddings.

    The embedding table belongs to the model and is an argument of every method. Leading axes of `y`
    (initial states) broadcast against the targets.
    """

    name: ClassVar[str]
    Config: ClassVar[type]

    latent: ClassVar[str] = ""
    """Name of the latent that is summed out per token; '' if there is none (and no `joint`)."""

    def __init__(self, config: Any, width: int, norm: Norm):
        super().__init__()
        self.config = config
        self.norm = norm

    def own_tokens(self, vocab: int):
        """Make the parameters of each token that an emission has besides the embedding table."""

    @abstractmethod
    def log_prob(
        self,
        y: Float[Tensor, "*W B T E"],
        targets: Tokens,
        table: Embeddings,
    ) -> Float[Tensor, "*W B T"]:
        """Return log P(target | y); most emissions compute no (B, T, V) tensor for this."""

    @abstractmethod
    def dense(self, y: Vectors, table: Embeddings) -> Float[Tensor, "*N V"]:
        """Return log P(v | y) for every v."""

    def score_next(
        self,
        y: Float[Tensor, "B W E"],
        token: StepTokens,
        table: Embeddings,
    ) -> Float[Tensor, "B W"]:
        """Return log P(token | y) of one token of each sequence, from each of its W contexts."""
        # As starts W of one position each, which broadcast against the tokens.
        contexts = y.transpose(0, 1)[:, :, None]
        scores = self.log_prob(contexts, token[:, None], table)
        return scores[..., 0].T

    def joint(
        self,
        y: Float[Tensor, "*W B T E"],
        targets: Tokens,
        table: Embeddings,
    ) -> Float[Tensor, "*W B T K"]:
        """Return log P(z, target | y); only for emissions with a `latent`."""
        # Not abstract, because most emissions have no latent.
        raise NotImplementedError(f"emission {self.name} has no latent variable")


EMISSIONS: Registry[type[Emission]] = Registry("emission")
EmissionChoice = Annotated[Any, EMISSIONS]

NumComponents = Annotated[int, IntRange(8, 512, log=True), Field(ge=1)]
