"""A language model of layers that mix positions, each in a residual."""

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.contract import Task
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm

STD = 0.02
"""Standard deviation of the initial matrices and embeddings in zoology's code."""


class ResidualMixers(FeatureModel):
    """x^{d+1} = x^d + mixer_d(N(x^d)), P = emission(N(x^D)); a subclass defines `mixer`.

    N is LayerNorm with learned scales. The config has `width`, `layers`, `emission` and
    `embedding_std`; embeddings start at N(0, 0.02²) by default.
    """

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        std = config.embedding_std or STD
        self.embedding = EmbeddingTable(task.vocab, config.width, std)
        self.mixers = nn.ModuleList(self.mixer(depth) for depth in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in range(config.layers + 1))
        self.emission = EMISSIONS.build(config.emission, config.width, Norm.RMS)
        self.latent = self.emission.latent

    @abstractmethod
    def mixer(self, depth: int) -> nn.Module:
        """Return a causal map from (B, t, E) to (B, t, E), that of layer `depth` from 0."""

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.embedding(tokens)
        *norms, last = self.norms
        for norm, mixer in zip(norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return last(x)
