r"""RWKV-7: a generalised delta rule with a decay and a rate per channel.

    x^□_t = x_t + μ_□ ⊙ (x_{t-1} − x_t)                    □ is r, w, k, v, a or g
    r_t, k_t, v_t = W_r x^r_t,  W_k x^k_t,  W_v x^v_t
    w_t = exp( −e^(−½) σ(b_w + W_w2 tanh(W_w1 x^w_t)) )    decay, in (0.545, 1)
    a_t = σ(b_a + W_a2 W_a1 x^a_t)                         in-context learning rate
    g_t = W_g2 σ(W_g1 x^g_t)                               output gate
    κ_t = unit(k_t ⊙ ξ)      unit(u) = u / |u| per head      k̃_t = k_t ⊙ (1 + (a_t − 1) ⊙ α)
    S_t = (diag(w_t) − (a_t ⊙ κ_t) κ_tᵀ) S_{t-1} + k̃_t v_tᵀ
    y_t = W_y ( ( N(S_tᵀ r_t) + (r_t · (ρ ⊙ k̃_t)) v_t ) ⊙ g_t )

S is (K, V) for each head, the transpose of the paper's. The small maps have rank max(2, ⌈E/4⌉).
Cuts:

    0  token_shift   μ_□ ⊙ (x_{t-1} − x_t)
    1  decay         diag(w_t) → I
    2  vector_decay  diag(w_t) → w_t: one w per head
    3  rate          a_t ⊙ κ_t → κ_t; k_t ⊙ (1 + (a_t − 1) ⊙ α) → k_t
    4  vector_rate   a_t ⊙ κ_t → a_t κ_t; (a_t − 1) ⊙ α → (a_t − 1) α: one a per head
    5  removal       (diag(w_t) − (a_t ⊙ κ_t) κ_tᵀ) → diag(w_t)
    6  removal_key   k_t ⊙ ξ → k_t: removes what k writes
    7  bonus         (r_t · (ρ ⊙ k̃_t)) v_t
    8  gate          g_t → 1
    9  norm          N(u) → u

All weights start as in the first layer of the published code: W_r and W_v orthogonal, W_k
orthogonal times 0.1, W_y, W_w1, W_a1 and W_g1 zero, the other matrices orthogonal times
0.1 √max(1, columns / rows). With removal cut (5) it is a gated linear attention (`gla`) with
another decay.

Differences from the code of flash-linear-attention (`layers/rwkv7.py`, bc3b101):

    there                              here                        why
    heads of 64 channels               2 heads                     widths of 32 to 256
    ranks of at least 32               max(2, ⌈E/4⌉)               the same
    value residual                     none                        it reads another layer
    scales of N at (1/layers)^0.7      at 1                        the same in every layer

Peng et al. 2025 (arXiv:2503.14456); N is LayerNorm per head, with a bias and ε = 10⁻⁵ K.
"""

from enum import StrEnum
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Heads, OwnDraw, Parts, State, Weights
from lmzoo.cells.cuts import cuts_of, removed
from lmzoo.cells.draws import ones
from lmzoo.cells.matrix import MatrixCell, head_norm, head_size
from lmzoo.functional.matrix_state import Update
from lmzoo.functional.sequence import delayed
from lmzoo.types import Shape

SHIFTED = ("r", "w", "k", "v", "a", "g")
SHIFT_POWERS = {
    "r": 0.2,
    "w": 0.9,
    "k": 0.7,
    "v": 0.7,
    "a": 0.9,
    "g": 0.2,
}
"""Exponents of the initial μ."""
MAX_RATE = 0.6065306597126334
"""e^(−½): the largest −log w."""
Cut = StrEnum(
    "Cut", "TOKEN_SHIFT DECAY VECTOR_DECAY RATE VECTOR_RATE REMOVAL REMOVAL_KEY BONUS GATE NORM"
)


REMOVED = {
    Cut.DECAY: [Cut.VECTOR_DECAY],
    Cut.RATE: [Cut.VECTOR_RATE],
    Cut.REMOVAL: [Cut.REMOVAL_KEY],
}


WEIGHTS = {
    Cut.TOKEN_SHIFT: {"mu"},
    Cut.DECAY: {"w1", "w2", "bias_w"},
    Cut.BONUS: {"rho"},
    Cut.RATE: {"a1", "a2", "bias_a", "alpha"},
    Cut.REMOVAL: {"xi"},
    Cut.REMOVAL_KEY: {"xi"},
    Cut.GATE: {"g1", "g2"},
    Cut.NORM: {"norm", "bias_norm"},
}
"""The weights that go with a cut."""


@CELLS("rwkv7")
class RWKV7(MatrixCell):
    """Linear attention with a vector decay, a vector rate and a removal key."""

    @config
    class Config:
        """Number of heads and the cuts, by name or number."""

        heads: Heads = 2
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, REMOVED)] = frozenset()

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        size = head_size(width, config.heads)
        n = config.heads
        cuts = config.cuts
        self.shape_state(n, size, size)
        inner = n * size
        quarter = -(-width // 4)
        rank = max(2, quarter)
        w_rows = inner
        if Cut.VECTOR_DECAY in cuts:
            w_rows = n
        a_rows = inner
        if Cut.VECTOR_RATE in cuts:
            a_rows = n
        # The order of the draws: what a seed gives depends on it.
        shapes = {
            "mu": (6 * width,),
            "r": (inner, width),
            "k": (inner, width),
            "v": (inner, width),
            "w1": (rank, width),
            "w2": (w_rows, rank),
            "bias_w": (w_rows,),
            "a1": (rank, width),
            "a2": (a_rows, rank),
            "bias_a": (a_rows,),
            "g1": (rank, width),
            "g2": (inner, rank),
            "xi": (inner,),
            "alpha": (inner,),
            "rho": (inner,),
            "norm": (inner,),
            "out": (width, inner),
            "bias_norm": (inner,),
        }
        cut = removed(WEIGHTS, cuts)
        own: dict[str, OwnDraw] = {
            "mu": _shifts,
            "bias_w": _decay_bias(n),
            "bias_a": _rate_bias(n),
            "xi": lambda shape: 0.71 - 0.1 * (_ramp(shape) - 0.5),  # 0.76 .. 0.66
            "alpha": _constant(1.02),
            "rho": _constant(-0.04),
            "norm": ones,
        }
        # With W_y at zero the layer adds nothing at first.
        zeros = ("w1", "a1", "g1", "out", "bias_norm")
        own |= dict.fromkeys(zeros, torch.zeros)
        own |= dict.fromkeys(("r", "v"), _orthogonal(1.0))
        own["k"] = _orthogonal(0.1)
        own |= dict.fromkeys(("w2", "a2", "g2"), _low_rank)
        self.w = Weights(shapes, cut, fan_in=width, own=own)

    def project(self, x: Tensor) -> Tensor:
        return x  # the projections also read the token before

    def initial_memory(self, start: Tensor) -> State:
        """Return the input before the first: 0."""
        return (start.new_zeros(len(start), self.width),)

    def prepare(self, projected: Tensor, memory: State) -> tuple[Parts, State]:
        x = projected
        w = self.w
        # The token before, also over the border of two calls.
        before = delayed(x, memory[0])
        mixed = dict.fromkeys(SHIFTED, x)
        if w.mu is not None:
            mu = w.mu.view(len(SHIFTED), -1)
            difference = before - x
            for i, name in enumerate(SHIFTED):
                mixed[name] = x + mu[i] * difference
        # Each projection reads its own mixture of both tokens.

        z = {}
        for name in ("r", "k", "v"):
            weight = getattr(w, name)
            z[name] = linear(mixed[name], weight)
        if w.w1 is not None:
            low = linear(mixed["w"], w.w1).tanh()
            z["w"] = linear(low, w.w2, w.bias_w)
        if w.a1 is not None:
            low = linear(mixed["a"], w.a1)
            logits = linear(low, w.a2, w.bias_a)
            z["a"] = logits.sigmoid()
        if w.g1 is not None:
            low = linear(mixed["g"], w.g1).sigmoid()
            z["g"] = linear(low, w.g2)
        return z, (x[:, -1],)

    def update(self, z: Parts) -> Update:
        w = self.w
        r = self.split_heads(z["r"])
        k = self.split_heads(z["k"])
        v = self.split_heads(z["v"])
        log_w = torch.zeros_like(r[..., :1])
        if "w" in z:
            # At least e^(−MAX_RATE) = 0.545: no step forgets all.
            decay = MAX_RATE * z["w"].sigmoid()
            log_w = self.split_heads(-decay)
        rate = torch.ones_like(k)
        written = k
        if "a" in z:
            rate = self.split_heads(z["a"])  # one per channel, or one per head
            alpha = w.alpha.view(self.heads, -1)
            # α = 1 writes k at the rate; α = 0 writes all of it.
            factor = 1 + (rate - 1) * alpha
            written = k * factor
        if Cut.REMOVAL in self.config.cuts:
            # Without removal there is no delta rule: p and r are absent.
            return Update(r, written, v, log_w)
        key = k
        if w.xi is not None:
            xi = w.xi.view(self.heads, -1)
            key = k * xi
        key = normalize(key, dim=-1)
        erase = rate * key
        return Update(r, written, v, log_w, erase, key)

    def output(self, o: Tensor, z: Parts, update: Update) -> Tensor:
        w = self.w
        heads = self.heads
        eps = 1e-5 * self.keys
        o = head_norm(o.flatten(-2), heads, w.norm, w.bias_norm, eps)
        if w.rho is not None:
            rho = w.rho.view(heads, -1)
            products = update.query * rho * update.key
            weight = products.sum(-1, keepdim=True)
            bonus = weight * update.value
            o = o + bonus.flatten(-2)
        if "g" in z:
            o = o * z["g"]
        return linear(o, w.out)


def _shifts(shape: Shape) -> Tensor:
    """Return initial μ: 1 − (c/E)^p for channel c, with the p of each projection."""
    projections = len(SHIFTED)
    channels = torch.arange(shape[0] // projections)
    # From 0 to 1 over the channels: they begin with different shifts.
    c = channels * projections / shape[0]
    parts = [1 - c ** SHIFT_POWERS[name] for name in SHIFTED]
    return torch.cat(parts)


def _decay_bias(heads: int) -> OwnDraw:
    """Return the draw of b_w: −5.5 .. 0.5 over the channels, plus 2.5 of the zigzag."""
    return lambda shape: -5.5 + 6 * _ramp(shape) + 2.5 * _zigzag(shape, heads)


def _rate_bias(heads: int) -> OwnDraw:
    return lambda shape: -0.19 + 0.4 * (_ramp(shape) - 0.5) + 0.3 * _zigzag(shape, heads)


def _ramp(shape: Shape) -> Tensor:
    return torch.linspace(0, 1, shape[0])


def _zigzag(shape: Shape, heads: int) -> Tensor:
    """Return z |z| for z = −1 .. 1 over the channels of each head; 0 for a head of one channel."""
    size = shape[0] // heads
    if size > 1:
        z = torch.linspace(-1, 1, size)
    else:
        z = torch.zeros(size)
    return (z * z.abs()).repeat(heads)


def _orthogonal(gain: float) -> OwnDraw:
    """Return the draw of orthogonal rows or columns, of length `gain`."""
    return lambda shape: nn.init.orthogonal_(torch.empty(shape), gain)


def _low_rank(shape: Shape) -> Tensor:
    rows, columns = shape
    gain = 0.1 * max(1, columns / rows) ** 0.5
    return nn.init.orthogonal_(torch.empty(shape), gain)


def _constant(value: float) -> OwnDraw:
    return lambda shape: torch.full(shape, value)
