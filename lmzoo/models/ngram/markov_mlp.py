r"""Neural n-gram: a feed-forward network reads the last τ tokens.

    x_t = [ c_1; ..; c_τ ]              c_j = e(s_{t-j}), the vector 1 before `<start>`
    y_t = MLP( x_t )                    `depth` hidden layers of `hidden` units; 0 is a linear map
    P(s_t | s_<t) = softmax( O y_t )    O = Emb if tied, else a second table

x_t is (τ·E), y_t is (E), Emb and O are (V, E). With depth=0 and tied=True it is the log-bilinear
n-gram.

Source: Bengio et al. 2003; S4.
"""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.vector import VectorEmission
from lmzoo.functional.normalise import Norm
from lmzoo.functional.sequence import previous_vectors
from lmzoo.search_space import IntRange
from lmzoo.types import Embeddings


class Activation(StrEnum):
    """Activation function of the hidden layers."""

    TANH = "tanh"
    RELU = "relu"
    GELU = "gelu"


@model("markov_mlp", family="ngram", document="S4", source="Bengio et al. 2003; S4")
class MarkovMLP(FeatureModel):
    """Neural n-gram: a feed-forward network of the last τ token vectors."""

    @config
    class Config(EmbeddingConfig):
        """Embedding, window and network."""

        window: Annotated[int, IntRange(1, 8)] = Field(4, ge=1)
        """Number τ of context tokens."""
        hidden: Annotated[int, IntRange(16, 512, log=True)] = Field(64, ge=1)
        """Units per hidden layer."""
        depth: Annotated[int, IntRange(1, 3)] = Field(1, ge=0)
        """Number of hidden layers."""
        activation: Activation = Activation.TANH
        tied: bool = True
        """Whether the output table is the embedding table."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, std = config.width, config.embedding_std
        sizes = [config.window * width, *[config.hidden] * config.depth, width]
        self.embedding = EmbeddingTable(task.vocab, width, std)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.emission = VectorEmission(VectorEmission.Config(), width, Norm.NONE)
        self.output = None if config.tied else EmbeddingTable(task.vocab, width, std)
        self.context_length = config.window

    @property
    def output_table(self) -> Embeddings:
        return (self.embedding if self.output is None else self.output).weight

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        y = previous_vectors(self.embedding(tokens), self.config.window).flatten(2)
        activate = getattr(torch.nn.functional, self.config.activation)
        *hidden, last = self.layers
        for layer in hidden:
            y = activate(layer(y))
        return last(y)
