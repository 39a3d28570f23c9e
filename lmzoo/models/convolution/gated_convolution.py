r"""Gated convolutional language model: a stack of causal convolutions with gated linear units.

    a_t = W_0 x_t + Σ_{j=1..k-1} W_j x_{t-j} + b        value; x_{t-j} = 0 before `<start>`
    g_t = V_0 x_t + Σ_{j=1..k-1} V_j x_{t-j} + c        gate
    y_t = f(a_t) ⊙ σ(g_t)                                f: `activation`
    x'_t = x_t + y_t                                     residual; the input of the next layer
    P(s_{t+1} | s_<=t) = emission(x^D_t),   x^0_t = e(s_t)

All vectors are (E), W_j and V_j are (E, E), k = `window`. D layers read the last D (k − 1) + 1
tokens. Cuts of every layer:

    0  gate         y = f(a)                 3  gate_past    V_j = 0 for j >= 1
    1  squash       y = f(a) ⊙ g             4  residual     x' = y
    2  value_past   W_j = 0 for j >= 1

Without cut and with the activation `identity` it is the gated linear unit of the paper; `tanh` is
the gated tanh unit; cut 1 is the bilinear layer; cut 0 with `identity`, `tanh` and `relu` gives the
linear, tanh and ReLU layers. Cuts 2 and 3 together leave a bigram. The paper also normalises
weights, puts several layers into a residual block and has an adaptive softmax; this model does not.

Source: Dauphin et al. 2017 (arXiv:1612.08083).
"""

from enum import StrEnum
from typing import Annotated, Any, cast

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable, Linear
from lmzoo.cells.cuts import cuts_of
from lmzoo.contract import DecodingState, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.functional.sequence import previous_vectors

Cut = StrEnum("Cut", "GATE SQUASH VALUE_PAST GATE_PAST RESIDUAL")
Activation = StrEnum("Activation", "IDENTITY TANH RELU")
"""The function f of the value."""


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the cuts without those of the gate if the gate itself is cut."""
    return cuts - {Cut.SQUASH, Cut.GATE_PAST} if Cut.GATE in cuts else cuts


class Convolution(nn.Module):
    """A causal convolution; the current vector and the earlier ones have separate weights."""

    def __init__(self, width: int, window: int, *, past: bool) -> None:
        super().__init__()
        std = (window * width) ** -0.5  # also without the past, so that variants start equal
        self.now = Linear(width, width, std)
        reads_past = past and window > 1
        self.past = Linear((window - 1) * width, width, std, bias=False) if reads_past else None

    def forward(self, taps: Float[Tensor, "*N k E"]) -> Float[Tensor, "*N E"]:
        """Apply the kernel to the k vectors at each position, the current one first."""
        now = self.now(taps[..., 0, :])
        return now if self.past is None else now + self.past(taps[..., 1:, :].flatten(-2))


class GatedLayer(nn.Module):
    """One gated convolution with a residual."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        c, cuts = config, config.cuts
        self.value = Convolution(c.width, c.window, past=Cut.VALUE_PAST not in cuts)
        gated = Cut.GATE not in cuts
        past = Cut.GATE_PAST not in cuts
        self.gate = Convolution(c.width, c.window, past=past) if gated else None
        self.squashed, self.residual = Cut.SQUASH not in cuts, Cut.RESIDUAL not in cuts
        self.activation = c.activation

    def forward(self, taps: Float[Tensor, "*N k E"]) -> Float[Tensor, "*N E"]:
        """Return x' from the last k inputs at each position, the current one first."""
        y = self.value(taps)
        if self.activation is not Activation.IDENTITY:
            y = torch.tanh(y) if self.activation is Activation.TANH else torch.relu(y)
        if self.gate is not None:
            g = self.gate(taps)
            y = y * (g.sigmoid() if self.squashed else g)
        return taps[..., 0, :] + y if self.residual else y


@model("gated_convolution", family="convolution", source="Dauphin et al. 2017 (arXiv:1612.08083)")
class GatedConvolution(FeatureModel):
    """Gated convolutional language model: causal convolutions with gated linear units."""

    @config
    class Config(EmbeddingConfig):
        """Embedding, emission, kernel size, depth and cuts."""

        emission: Annotated[Any, EMISSIONS] = "vector"
        layers: Annotated[int, IntRange(1, 6)] = Field(3, ge=1)
        """Number D of layers."""
        window: Annotated[int, IntRange(2, 6)] = Field(4, ge=1)
        """Kernel size k, the current token included."""
        activation: Activation = Activation.IDENTITY
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = EmbeddingTable(task.vocab, config.width, config.embedding_std)
        self.layers = nn.ModuleList(GatedLayer(config) for _ in range(config.layers))
        self.emission = EMISSIONS.build(config.emission, config.width, Norm.RMS)
        self.latent = self.emission.latent

    @property
    def state_size(self) -> int | None:
        c = self.config
        return c.layers * (c.window - 1) * c.width

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(previous_vectors(x, self.config.window, pad=0.0))
        return x

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        c = self.config
        empty = self.embedding.weight.new_zeros(batch, c.window - 1, c.width)
        return (empty,) * c.layers

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        """Read one token; the state holds the last k − 1 inputs of each layer, newest first."""
        x, new = self.embedding(token), []
        for layer, earlier in zip(self.layers, state, strict=True):
            taps = torch.cat([x[:, None], earlier], dim=1)
            new.append(taps[:, :-1])
            x = cast("GatedLayer", layer)(taps)
        return self.emission.dense(x, self.output_table), tuple(new)
