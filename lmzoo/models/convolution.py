"""Language models whose features are convolutions over earlier tokens."""

import math
from abc import abstractmethod
from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import pad

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingConfig, Layers, Linear
from lmzoo.cells.cuts import cuts_of
from lmzoo.contract import DecodingState, Task, model
from lmzoo.emissions.base import EmissionChoice
from lmzoo.functional.parameters import Undecayed
from lmzoo.functional.precision import single
from lmzoo.functional.sequence import previous_vectors
from lmzoo.types import Features, Vectors

Cut = StrEnum("Cut", "GATE SQUASH VALUE_PAST GATE_PAST RESIDUAL")
Activation = StrEnum("Activation", "IDENTITY TANH RELU")
"""The function f of the value."""


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the cuts without those of the gate if the gate itself is cut."""
    if Cut.GATE in cuts:
        return cuts - {Cut.SQUASH, Cut.GATE_PAST}
    return cuts


def causal_convolution(
    x: Float[Tensor, "B t E ..."], kernel: Float[Tensor, "E T"]
) -> Float[Tensor, "B t E ..."]:
    """Return y_t = Σ_{j=0..t} k_j ⊙ x_{t-j}, the tap of lag 0 first, and zeros after the last one.

    Inputs with further dimensions are convolved with the kernel of their channel e < E. Toeplitz
    matrices read no later input, not even by rounding as a convolution by FFT does, and take no
    longer at the lengths of the zoo.
    """
    t = torch.arange(x.shape[1], device=x.device)
    lag = t[:, None] - t
    taps = kernel.shape[1]
    # The kernel has no taps for lags beyond its length: they are 0.
    missing = max(0, len(t) - taps)
    kernel = pad(kernel, (0, missing))
    causal = lag >= 0
    index = lag.clamp(min=0)
    toeplitz = kernel[:, index] * causal
    return torch.einsum("ets,bse...->bte...", toeplitz, x)


class Convolution(nn.Module):
    """A causal convolution; the current vector and the earlier ones have separate weights."""

    def __init__(self, width: int, window: int, *, past: bool):
        super().__init__()
        # Also without the past, so that variants start with equal weights.
        std = (window * width) ** -0.5
        self.now = Linear(width, width, std)
        self.past = None
        if past and window > 1:
            columns = (window - 1) * width
            self.past = Linear(columns, width, std, bias=False)

    def forward(self, taps: Float[Tensor, "*N k E"]) -> Vectors:
        """Apply the kernel to the k vectors at each position, the current one first."""
        # Two products and one sum: a layer without the past computes the same first product.
        now = self.now(taps[..., 0, :])
        if self.past is None:
            return now
        past = taps[..., 1:, :]
        return now + self.past(past.flatten(-2))


class GatedLayer(nn.Module):
    """One gated convolution with a residual."""

    def __init__(self, config: Any):
        super().__init__()
        c = config
        cuts = config.cuts
        value_past = Cut.VALUE_PAST not in cuts
        self.value = Convolution(c.width, c.window, past=value_past)
        if Cut.GATE in cuts:
            self.gate = None
        else:
            gate_past = Cut.GATE_PAST not in cuts
            self.gate = Convolution(c.width, c.window, past=gate_past)
        self.squashed = Cut.SQUASH not in cuts
        self.residual = Cut.RESIDUAL not in cuts
        self.activation = c.activation

    def forward(self, taps: Float[Tensor, "*N k E"]) -> Vectors:
        """Return x' from the last k inputs at each position, the current one first."""
        y = self.value(taps)
        if self.activation is Activation.TANH:
            y = y.tanh()
        elif self.activation is Activation.RELU:
            y = y.relu()
        if self.gate is not None:
            g = self.gate(taps)
            # Without σ the gate is a factor: the bilinear layer.
            if self.squashed:
                g = g.sigmoid()
            y = y * g
        if self.residual:
            return taps[..., 0, :] + y
        return y


Taps = Annotated[int, IntRange(2, 6), Field(ge=1)]


@model(
    "gated_convolution",
    family="convolution",
    source="Dauphin et al. 2017 (arXiv:1612.08083)",
)
class GatedConvolution(FeatureModel):
    """Gated convolutional language model: causal convolutions with gated linear units.

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

    Without cut and with the activation `identity` it is the gated linear unit of the paper; `tanh`
    is the gated tanh unit; cut 1 is the bilinear layer; cut 0 with `identity`, `tanh` and `relu`
    gives the linear, tanh and ReLU layers. Cuts 2 and 3 together leave a bigram. The paper also
    normalises weights, puts several layers into a residual block and has an adaptive softmax; this
    model does not.
    """

    @config
    class Config(EmbeddingConfig):
        """Embedding, emission, kernel size, depth and cuts."""

        emission: EmissionChoice = "vector"
        layers: Layers = 3
        """Number D of layers."""
        window: Taps = 4
        """Kernel size k, the current token included."""
        activation: Activation = Activation.IDENTITY
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task, config.embedding_std)
        layers = [GatedLayer(config) for _ in range(config.layers)]
        self.layers: Any = nn.ModuleList(layers)

    @property
    def state_size(self) -> int | None:
        c = self.config
        earlier = c.window - 1
        return c.layers * (earlier) * c.width

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            taps = previous_vectors(x, self.config.window, pad=0.0)
            x = layer(taps)
        return x

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        c = self.config
        weight = self.embedding.weight
        # Before `<start>` every layer reads zeros, not the images of zeros under the layer below.
        empty = weight.new_zeros(batch, c.window - 1, c.width)
        return (empty,) * c.layers

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        """Read one token; the state holds the last k − 1 inputs of each layer, newest first."""
        x = self.embedding(token)
        new = []
        for layer, earlier in zip(self.layers, state, strict=True):
            taps = torch.cat([x[:, None], earlier], 1)
            # The oldest input leaves the window.
            new.append(taps[:, :-1])
            x = layer(taps)
        scores = self.emission.dense(x, self.output_table)
        return scores, tuple(new)


STD = 0.02
"""Standard deviation of the initial matrices and embeddings in zoology's code."""


class ResidualMixers(FeatureModel):
    """x^{d+1} = x^d + mixer_d(N(x^d)), P = emission(N(x^D)); a subclass defines `mixer`.

    N is LayerNorm with learned scales. The config has `width`, `layers`, `emission` and
    `embedding_std`; embeddings start at N(0, 0.02²) by default.
    """

    def __init__(self, config: Any, task: Task):
        std = config.embedding_std
        if std is None:
            std = STD
        super().__init__(config, task, std)
        depth = config.layers
        mixers = [self.mixer(layer) for layer in range(depth)]
        self.mixers = nn.ModuleList(mixers)
        # One more than mixers: the emission reads a normalised vector, too.
        norms = [nn.LayerNorm(config.width) for _ in range(depth + 1)]
        self.norms = nn.ModuleList(norms)

    @abstractmethod
    def mixer(self, depth: int) -> nn.Module:
        """Return a causal map from (B, t, E) to (B, t, E), that of layer `depth` from 0."""

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for norm, mixer in zip(self.norms[:-1], self.mixers, strict=True):
            read = norm(x)
            x = x + mixer(read)
        return self.norms[-1](x)


STEPS = (0.001, 0.1)
"""Range of the initial Δ."""


class H3Mixer(nn.Module):
    """One layer without its residual and norm."""

    def __init__(
        self,
        width: int,
        size: int,
        states: int,
        length: int,
    ):
        super().__init__()
        self.size = size
        heads = width // size
        self.query = Linear(width, width, STD)
        self.key = Linear(width, width, STD)
        self.value = Linear(width, width, STD)
        self.output = Linear(width, width, STD)
        self.shift = nn.Parameter(torch.empty(width, length))
        self.shift_skip = nn.Parameter(torch.empty(width))
        self.log_step = nn.Parameter(torch.empty(heads))
        # Weight decay would pull the states to −1 and to frequency 0.
        self.log_decay = Undecayed(torch.empty(heads, states))
        self.frequency = Undecayed(torch.empty(heads, states))
        self.read = nn.Parameter(torch.empty(heads, states, 2))  # C, real and imaginary
        self.skip = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self):
        taps = self.shift.shape[1]
        bound = taps**-0.5
        nn.init.uniform_(self.shift, -bound, bound)
        least, most = map(math.log, STEPS)
        nn.init.uniform_(self.log_step, least, most)
        nn.init.constant_(self.log_decay, math.log(0.5))
        states = self.frequency.shape[1]
        n = torch.arange(states)
        self.frequency.copy_(math.pi * n.expand_as(self.frequency))
        # Variance ½ of each part is variance 1 of the complex number C.
        nn.init.normal_(self.read, std=0.5**0.5)
        for skip in (self.shift_skip, self.skip):
            nn.init.normal_(skip)

    def kernel(self, length: int) -> Float[Tensor, "heads t"]:
        """Return the first taps c of the diagonal state spaces."""
        # In polar form: a state of frequency 0 then has no imaginary part, not even by rounding.
        # Angles grow with the lag: half precision has no digits left for them.
        step = single(self.log_step).exp()
        step = step[:, None]
        real = self.log_decay.exp() * step / 2
        imaginary = self.frequency * step / 2
        # The ratio (1 + ½ΔA)/(1 − ½ΔA) as length and angle; its power j is the length to the j and
        # j times the angle.
        above = (1 + real).square() + imaginary.square()
        below = (1 - real).square() + imaginary.square()
        first = torch.atan2(imaginary, 1 + real)
        turn = first + torch.atan2(imaginary, 1 - real)
        lags = torch.arange(length, device=step.device)
        turned = turn[..., None] * lags
        angle = first[..., None] + turned
        ratio = below / above
        log_size = 0.5 * ratio.log()
        size = (log_size[..., None] * lags).exp()
        scale = 2 * step * above.rsqrt()
        cosine, sine = self.read.unbind(-1)
        even = cosine[..., None] * angle.cos()
        odd = sine[..., None] * angle.sin()
        by_state = scale[..., None] * size * (even - odd)
        return by_state.sum(1)

    def forward(self, u: Features) -> Features:
        """Return W_o (q_t S_t) + b_o."""
        q = self.query(u)
        k = self.key(u)
        v = self.value(u)
        shifted = causal_convolution(k, self.shift)
        k = shifted + self.shift_skip * k
        by_head = (-1, self.size)
        q = q.unflatten(-1, by_head)
        k = k.unflatten(-1, by_head)
        v = v.unflatten(-1, by_head)
        # κ v' in each head: (B, t, heads, d, d).
        products = k[..., :, None] * v[..., None, :]
        kernel = self.kernel(u.shape[1])
        kernel = kernel.to(products.dtype)
        s = causal_convolution(products, kernel)
        skip = self.skip[:, None, None]
        s = s + skip * products
        read = (q[..., None] * s).sum(-2)
        return self.output(read.flatten(-2))


@model(
    "h3",
    family="convolution",
    source="Fu et al. 2023 (arXiv:2212.14052)",
)
class H3(ResidualMixers):
    """Language model of H3 layers: gated long convolutions whose kernels are state spaces.

        q_t, k_t, v_t = W_q u_t + b_q, W_k u_t + b_k, W_v u_t + b_v           u_t = N(x_t), in E
        κ_t = Σ_j s_j ⊙ k_{t-j} + p ⊙ k_t                                     shift
        S_t = Σ_j c_j κ_{t-j} v_{t-j}ᵀ + D κ_t v_tᵀ                           in each head, (d, d)
        x'_t = x_t + W_o (q_t S_t) + b_o
        c_j = 2 Re Σ_n C_n Δ / (1 − ½ Δ A_n) ((1 + ½ Δ A_n) / (1 − ½ Δ A_n))^j

    s is a kernel of T − 1 taps per channel; c is that of a diagonal state space per head, N complex
    states each. A_n starts at −½ + iπn, Δ log-uniform in [0.001, 0.1], C, D and p at N(0, 1), s at
    U(±1/√(T−1)), matrices and embeddings at N(0, 0.02²), b at 0. There are E / d heads; q_t S_t
    reads a head by its d channels of q.

    Differences from zoology's code: the vector B of both state spaces is part of their C; no FFT.

    Fu et al. 2023 (arXiv:2212.14052); HazyResearch/zoology `mixers/h3`.
    """

    @config
    class Config(EmbeddingConfig):
        """Embedding, emission, depth, and sizes of a layer."""

        emission: EmissionChoice = "vector"
        layers: Layers = 2
        """Number D of layers."""
        size: int = Field(2, ge=1)
        """Channels d of a head; divides `width`."""
        states: int = Field(32, ge=1)
        """Complex states N of a head."""

        @model_validator(mode="after")
        def _size_divides_width(self) -> Any:
            if self.width % self.size:
                raise UserError(f"size={self.size} must divide width={self.width}")
            return self

    def mixer(self, depth: int) -> nn.Module:
        c = self.config
        # The last token is never read: T − 1 taps.
        taps = self.task.length - 1
        return H3Mixer(c.width, c.size, c.states, taps)


SHORT = 3
"""Taps of the short kernel."""
UNITS = 16
"""Hidden units of the network that computes the long kernel."""


class BaseConvMixer(nn.Module):
    """One layer without its outer residual and norm."""

    def __init__(self, width: int, length: int, *, long: bool):
        super().__init__()
        self.map = Linear(width, width, STD)
        self.long = long
        self.length = length
        # A long kernel is a function of the place, so that its length costs no weights.
        if long:
            self.hidden = Linear(3, UNITS, STD)
            self.taps = Linear(UNITS, width, STD)
        else:
            self.short = nn.Conv1d(width, width, SHORT, groups=width)

    def forward(self, u: Features) -> Features:
        """Return u + conv(u) ⊙ (W u + b)."""
        mixed = self._convolve(u)
        return u + mixed * self.map(u)

    def _convolve(self, u: Tensor) -> Tensor:
        if not self.long:
            earlier = pad(u.mT, (SHORT - 1, 0))
            return self.short(earlier).mT
        # In float32 at least: half precision does not resolve angles of 1e-4.
        dtype = single(u).dtype
        j = torch.arange(u.shape[1], device=u.device, dtype=dtype)
        angle = 1e-4 * 2 * math.pi * j / self.length
        last = max(1, self.length - 1)
        share = j / last
        parts = [share, angle.cos(), -angle.sin()]
        place = torch.stack(parts, -1)
        hidden = self.hidden(place.to(u)).relu()
        kernel = self.taps(hidden)
        return u + causal_convolution(u, kernel.mT)


@model(
    "base_conv",
    family="convolution",
    source="Arora et al. 2023 (arXiv:2312.04927)",
)
class BaseConv(ResidualMixers):
    """Language model of gated convolutions, short and long ones by turns.

        x'_t = x_t + u_t + (conv(u)_t) ⊙ (W u_t + b)                      u_t = N(x_t), in E
        conv(u)_t = Σ_{j<3} s_j ⊙ u_{t-j} + c                             layers 1, 3, ...
        conv(u)_t = u_t + Σ_j f_j ⊙ u_{t-j}                               layers 2, 4, ...
        f_j = W_2 relu(W_1 (j/(T−1), cos ε_j, −sin ε_j) + b_1) + b_2       ε_j = 10^−4 · 2πj/T

    The long kernel f is the output of a network of 16 units. All matrices start at N(0, 0.02²).

    Difference from zoology's code: no FFT.

    Arora et al. 2023 (arXiv:2312.04927); the mixer `base_conv` of HazyResearch/zoology.
    """

    @config
    class Config(EmbeddingConfig):
        """Embedding, emission and depth."""

        emission: EmissionChoice = "vector"
        layers: Layers = 4
        """Number D of layers."""

    def mixer(self, depth: int) -> nn.Module:
        long = depth % 2 == 1
        return BaseConvMixer(self.config.width, self.task.length, long=long)
