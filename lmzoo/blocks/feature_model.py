"""Base class of models that compute one feature vector per position and apply an emission to it."""

from abc import abstractmethod
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.contract import LanguageModel, Task
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.types import Embeddings, Features, Lengths, NextScores, Tokens


class FeatureModel(LanguageModel):
    """P(s_{t+1} | s_<=t) = emission(y_t), y = features(tokens); a subclass defines `features`."""

    emission: Emission
    emission_norm: ClassVar[Norm] = Norm.RMS
    """Normaliser of the emission."""
    output: EmbeddingTable | None
    """The table of the emission in models that are not tied."""

    def __init__(
        self,
        config: Any,
        task: Task,
        std: float | None = None,
    ):
        """`std` is the standard deviation of the initial embeddings."""
        super().__init__(config, task)
        width = config.width
        self.embedding = EmbeddingTable(task.vocab, width, std)
        emission = getattr(config, "emission", None)
        if emission is None:
            emission = EMISSIONS.parse("vector")
        self.emission = EMISSIONS.build(emission, width, self.emission_norm)
        self.output = None
        # A conditional model has no posterior without a source.
        if self.conditional:
            self.latent = ""
        else:
            self.latent = self.emission.latent

    @abstractmethod
    def features(self, tokens: Tensor, *sources: Tensor) -> Features:
        """Return the feature vector y after each token, computed from the tokens up to it."""

    def score_tokens(self, tokens: Tensor, lengths: Tensor, *sources: Tensor) -> Tensor:
        y = self.features(tokens[:, :-1], *sources)
        targets = tokens[:, 1:]
        return self.emission.log_prob(y, targets, self.output_table)

    def next_log_prob(self, prefix: Tensor, *sources: Tensor) -> NextScores:
        inputs = self.conditioning_inputs(sources)
        y = self.features(prefix, *inputs)
        return self.emission.dense(y[:, -1], self.output_table)

    def most_probable(self, tokens: Tensor, lengths: Tensor, *sources: Tensor) -> Tensor:
        inputs = self.conditioning_inputs(sources)
        y = self.features(tokens[:, :-1], *inputs)
        dense = self.emission.dense(y, self.output_table)
        return dense.argmax(-1)

    def posterior(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B K T-1"]:
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self.features(tokens[:, :-1])
        targets = tokens[:, 1:]
        joint = self.emission.joint(y, targets, self.output_table)
        return joint.softmax(-1).mT

    @property
    def output_table(self) -> Embeddings:
        """The embedding matrix of the emission, by default tied to the inputs."""
        table = self.embedding
        if self.output is not None:
            table = self.output
        return self.scaled(table.weight)
