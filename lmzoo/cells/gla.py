"""Linear attention: GLA, HGRN2 with decays by row, and retention with fixed decays."""

import math
from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import linear, logsigmoid, silu

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, Expand, Heads, Parts, State
from lmzoo.cells.cuts import cuts_of, numbered, removed
from lmzoo.cells.draws import by_columns, by_fan_in, glorot, ones
from lmzoo.cells.matrix import MatrixCell, WeightTable, fixed_log_decays, head_size, normed
from lmzoo.functional.matrix_state import Update
from lmzoo.functional.normalise import rms_norm

RANK = 16
TEMPERATURE = 16
"""The root of σ: α starts near 1."""
ExpandK = Annotated[float, Choice((0.5, 1.0)), Field(gt=0, le=4)]
GLACut = StrEnum("GLACut", "VECTOR DATA DECAY GATE NORM")
FIXED = {
    GLACut.DECAY: [GLACut.DATA, GLACut.VECTOR],
    GLACut.DATA: [GLACut.VECTOR],
}


@CELLS("gla")
class GatedLinearAttention(MatrixCell):
    """Linear attention with a decay that depends on the token.

        q_t = W_q x_t / √K        k_t = W_k x_t        v_t = W_v x_t
        α_t = σ( W_α2 W_α1 x_t + b_α )^(1/16)             rank 16, one value per key channel
        S_t = diag(α_t) S_{t-1} + k_t v_tᵀ
        y_t = W_y ( N(S_tᵀ q_t) ⊙ swish(W_g x_t) )

    S is (K, V) for each head, K = `expand_k` · V. The first three cuts are the rows of the
    published ablation:

        0  vector   diag(α_t) → α_t: one α per head
        1  data     α_t = 1 − 2^(−5−h); diag(α_t) → α_t: `retention` without rotation, in head h
        2  decay    diag(α_t) S_{t-1} → S_{t-1}: linear attention
        3  gate     swish(W_g x_t) → 1
        4  norm     N(u) → u

    Differences from the code of flash-linear-attention (`layers/gla.py`, bc3b101):

        there                              here                       why
        4 heads                            2 heads                    widths of 32 to 256
        models redraw at N(0, 0.02²)       U(±1/√fan-in) of the layer `recipe.init=normal_0.02` does

    Yang et al. 2024 (arXiv:2312.06635); N is RMSNorm per head, with the same scales for all heads.
    """

    @config
    class Config:
        """Number of heads, size of the keys, and the cuts, by name or number."""

        heads: Heads = 2
        expand_k: ExpandK = 0.5
        """K / V; K is rounded up."""
        cuts: Annotated[frozenset[GLACut], cuts_of(GLACut, FIXED)] = frozenset()

    log_decay: Tensor | None

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        size = head_size(width, config.heads)
        cuts = config.cuts
        keys_of_head = math.ceil(config.expand_k * size)
        self.shape_state(config.heads, keys_of_head, size)
        keys = config.heads * self.keys
        inner = config.heads * size
        rank = min(RANK, width)
        rows = keys
        if GLACut.VECTOR in cuts:
            rows = config.heads
        weights: WeightTable = {
            "q": keys,
            "k": keys,
            "v": inner,
            "gate": inner,
            "low": rank,
            "norm": (size, ones),
            "out": ((width, inner), by_columns),
            "alpha": ((rows, rank), by_columns),
            "bias_alpha": (rows, by_fan_in(rank)),
        }
        cut = {name for name in ("gate", "norm") if name in cuts}
        log_decay = None
        if cuts & {GLACut.DATA, GLACut.DECAY}:
            cut |= {"low", "alpha", "bias_alpha"}
            decays = fixed_log_decays(config.heads)
            if GLACut.DECAY in cuts:
                decays = [0.0] * config.heads
            log_decay = torch.tensor(decays)
        self.set_weights(weights, cut)
        # A function of the config: a checkpoint does not need it.
        self.register_buffer("log_decay", log_decay, persistent=False)

    def update(self, z: Parts) -> Update:
        # Scores are divided by √K, as in attention.
        q = self.split_heads(z["q"]) / self.keys**0.5
        k = self.split_heads(z["k"])
        v = self.split_heads(z["v"])
        if self.log_decay is not None:
            log_decay = _expanded(self.log_decay, q)
        else:
            logit = linear(z["low"], self.w.alpha, self.w.bias_alpha)
            # The temperature keeps α near 1 at the start: σ(z)^(1/16).
            log_alpha = logsigmoid(logit) / TEMPERATURE
            log_decay = self.split_heads(log_alpha)
        return Update(q, k, v, log_decay)


def _expanded(
    log_decay: Float[Tensor, "n"],
    q: Float[Tensor, "*N n K"],
) -> Tensor:
    """Return the decay of each head at every position."""
    one = q[..., :1]
    return log_decay[:, None].expand_as(one)


GAIN = 2**-2.5
"""Factor of the initial W_q, W_k, W_v and W_g."""
RetentionCut = StrEnum("RetentionCut", "ROTATION DECAY SCALES GATE NORM")
UNSCALED = {RetentionCut.DECAY: [RetentionCut.SCALES]}


@CELLS("retention")
class Retention(MatrixCell):
    """Linear attention with a fixed decay per head.

        q_t = R^t W_q x_t / √K        k_t = R^t W_k x_t       v_t = W_v x_t
        S_t = γ S_{t-1} + k_t v_tᵀ    γ = 1 − 2^(−5−h)        in head h
        y_t = W_y ( N(S_tᵀ q_t) ⊙ swish(W_g x_t) )

    R^t rotates the i-th pair of channels by t 10000^(−i/(K/2−1)). S is (K, V) for each head, V =
    `expand_v` · K. W_q, W_k, W_v and W_g start at U(±g √(6/(fan-in + fan-out))) with g = 2^(−5/2),
    W_y with g = 1 (Glorot). Cuts:

        0  rotation   R^t → 1                        3  gate   swish(W_g x_t) → 1
        1  decay      γ → 1: linear attention        4  norm   N(u) → u
        2  scales     γ = 127/128: for all heads

    Differences from the code of torchscale (`component/multiscale_retention.py`, 05a9628):

        there                              here                        why
        3 heads                            2 heads                     2 divides all widths
        rows of weights have sum 1 or      not divided                 N removes it, up to its ε
        less, before N
        pairs are channels 2i, 2i + 1      i, i + K/2                  the same up to their order

    Sun et al. 2023 (arXiv:2307.08621), with the cuts of its ablation; N is RMSNorm per head,
    without learned scales.
    """

    @config
    class Config:
        """Number of heads, size of the values, and the cuts, by name or number."""

        heads: Heads = 2
        expand_v: Expand = 2
        """V / K."""
        cuts: Annotated[frozenset[RetentionCut], cuts_of(RetentionCut, UNSCALED)] = frozenset()

    log_decay: Tensor

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        size = head_size(width, config.heads)
        cuts = config.cuts
        self.shape_state(config.heads, size, config.expand_v * size)
        keys = config.heads * size
        values = config.heads * self.values
        columns = {
            "q": keys,
            "k": keys,
            "v": values,
            "gate": values,
        }
        cut = set()
        if RetentionCut.GATE in cuts:
            cut = {"gate"}
        weights: WeightTable = columns | {"out": ((width, values), glorot(1.0))}
        own = dict.fromkeys(columns, glorot(GAIN))
        self.set_weights(weights, cut, **own)
        scales = RetentionCut.SCALES not in cuts
        decays = fixed_log_decays(config.heads, scales=scales)
        if RetentionCut.DECAY in cuts:
            decays = [0.0] * config.heads
        # Constants, not weights: they move with the cell, and no checkpoint needs them.
        self.register_buffer("log_decay", torch.tensor(decays), persistent=False)

    def initial_memory(self, start: Tensor) -> State:
        """Return the number of tokens read, for the rotation."""
        if RetentionCut.ROTATION in self.config.cuts:
            return ()
        position = start.new_zeros(len(start), 1)
        return (position,)

    def prepare(self, projected: Tensor, memory: State) -> tuple[Parts, State]:
        z, _ = super().prepare(projected, ())
        if RetentionCut.ROTATION in self.config.cuts:
            return z, ()
        steps = projected.shape[1]
        read = memory[0]
        # Positions go on after a chunk.
        t = read + torch.arange(steps, device=projected.device)
        z["t"] = t[..., None, None]
        return z, (read + steps,)

    def update(self, z: Parts) -> Update:
        q = self.split_heads(z["q"])
        k = self.split_heads(z["k"])
        v = self.split_heads(z["v"])
        if "t" in z:
            # As published: the slowest pair turns with 10000^(−1).
            last = max(1.0, self.keys // 2 - 1.0)
            q = rotate(q, z["t"], last)
            k = rotate(k, z["t"], last)
        log_decay = _expanded(self.log_decay, q)
        q = q / self.keys**0.5
        return Update(q, k, v, log_decay)

    def output(self, o: Tensor, z: Parts, update: Update) -> Tensor:
        # Here, not in the base class: this norm has no learned scales.
        if RetentionCut.NORM not in self.config.cuts:
            o = rms_norm(o)
        return super().output(o, z, update)


def rotate(x: Tensor, t: Tensor, last: float) -> Tensor:
    """Rotate channels (i, i + K/2) of x (*N, n, K) by t 10000^(−i/last); an odd one is kept."""
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=x.dtype)
    frequency = 10000.0 ** (-i / last)
    angle = t * frequency
    cos = angle.cos()
    sin = angle.sin()
    a = x[..., :half]
    b = x[..., half : 2 * half]
    rest = x[..., 2 * half :]
    first = a * cos - b * sin
    second = a * sin + b * cos
    return torch.cat([first, second, rest], -1)


HGRN2Cut = StrEnum("HGRN2Cut", "LOWER_BOUND INPUT_TO_FORGET TIED_WRITE QUERY SQUASH CARRY NORM")
UNFORGOTTEN = (HGRN2Cut.TIED_WRITE, HGRN2Cut.CARRY)
"""Cuts that leave f without effect."""
HGRN2_WEIGHTS = {
    HGRN2Cut.LOWER_BOUND: {"bound"},
    HGRN2Cut.INPUT_TO_FORGET: {"xf"},
    HGRN2Cut.QUERY: {"xq"},
    HGRN2Cut.NORM: {"norm"},
    UNFORGOTTEN: {"bound", "xf"},
}
"""The weights that go with a cut, or with both cuts of a pair."""


def canonical_hgrn2(cuts: frozenset[HGRN2Cut]) -> frozenset[HGRN2Cut]:
    """Return the one set of cuts for a function; a `UserError` if f is zero at every step."""
    none = {HGRN2Cut.LOWER_BOUND, HGRN2Cut.INPUT_TO_FORGET}
    if cuts >= none:
        raise UserError(f"cuts {numbered(none)} leave f = 0 at every step; use the cut carry (5)")
    if cuts.issuperset(UNFORGOTTEN):
        cuts = cuts - none
    # Without a query nothing is left to squash.
    if HGRN2Cut.QUERY in cuts:
        return cuts - {HGRN2Cut.SQUASH}
    return cuts


@CELLS("hgrn2")
class HGRN2(MatrixCell):
    """A linear recurrence with one matrix as the state of each head, and decays by row.

        f_t = γ + (1 − γ) ⊙ σ( x_t W_f )                  forget gate
        γ = σ( Γ )                                        its lower bound
        q_t = silu( x_t W_q ) / √d                        query
        S_t = diag(f_t) S_{t-1} + (1 − f_t)ᵀ (x_t W_v)    state, (d, d) in each head
        h_t = N( q_t S_t ) W_h

    d = H / heads; heads=H is an elementwise recurrence, as in HGRN. S_0 is the outer product of two
    vectors of each head, 0 for the start of a model. A cut replaces a term:

        0  lower_bound      γ → 0                                  3  query     q_t → 1ᵀ / √d
        1  input_to_forget  (1 − γ) ⊙ σ( x_t W_f ) → 0: f = γ      4  squash    silu(u) → u
        2  tied_write       (1 − f_t)ᵀ → 1ᵀ                        5  carry     diag(f_t) S_{t-1}
        6  norm             N(u) → u

    Differences from the code of flash-linear-attention (`layers/hgrn2.py`, bc3b101):

        there                              here                       why
        γ rises with the layer, from 0     learned for each channel,  the same in every layer
                                           from ½
        heads of 128 channels              1 head                     widths of 32 to 256

    Qin et al. 2024 (arXiv:2404.07904); Qin et al. 2023 (arXiv:2311.04823).
    """

    @config
    class Config:
        """The cuts, by name or number, and the number of heads."""

        cuts: Annotated[frozenset[HGRN2Cut], cuts_of(HGRN2Cut, canonical_hgrn2)] = frozenset()
        heads: int = Field(1, ge=1)

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        if width % config.heads:
            raise UserError(f"heads={config.heads} must divide width={width}")
        h = width
        size = width // config.heads
        self.shape_state(config.heads, size, size)
        # Two vectors start a matrix: their outer product.
        self.num_state_vectors = 2
        weights: WeightTable = {
            "xf": h,
            "xq": h,
            "xv": h,
            "bound": (h, torch.zeros),
            "norm": (h, ones),
            "out": ((h, h), by_columns),
        }
        self.set_weights(weights, removed(HGRN2_WEIGHTS, self.cuts))

    def initial_state(self, start: Tensor) -> State:
        vectors = self.shift_start(start).chunk(2, -1)
        key, value = map(self.split_heads, vectors)
        # Rank one: K V numbers would need as many start vectors.
        matrix = key[..., :, None] * value[..., None, :]
        return (matrix,)

    def project(self, x: Tensor) -> Tensor:
        columns = [getattr(self.w, name) for name in self._columns]
        weight = torch.cat(columns, 1)
        return x @ weight

    def update(self, z: Parts) -> Update:
        value = self.split_heads(z["xv"])
        bound = self.w.bound
        log_f = torch.zeros_like(z["xv"])  # without effect where f has no weights
        if "xf" in z:
            log_f = logsigmoid(z["xf"])
        if bound is not None:  # f may underflow, its logarithm does not
            lower = logsigmoid(bound)
            rest = logsigmoid(-bound) + log_f
            if "xf" in z:
                log_f = torch.logaddexp(lower, rest)
            else:
                log_f = lower.expand_as(log_f)
        log_f = self.split_heads(log_f)
        if HGRN2Cut.TIED_WRITE in self.cuts:
            key = torch.ones_like(value)
        else:
            key = -log_f.expm1()  # 1 − f, also where f is near 1
        query = torch.ones_like(value)
        if "xq" in z:
            query = z["xq"]
            if HGRN2Cut.SQUASH not in self.cuts:
                query = silu(query)
            query = self.split_heads(query)
        return Update(query / self.keys**0.5, key, value, log_f)

    def step_memory(self, update: Update, matrix: Tensor) -> tuple[Tensor, Tensor]:
        if HGRN2Cut.CARRY in self.cuts:
            # Nothing of the tokens before is left.
            matrix = torch.zeros_like(matrix)
        return super().step_memory(update, matrix)

    def scan_memory(self, update: Update, matrix: Tensor) -> tuple[Tensor, Tensor]:
        if HGRN2Cut.CARRY not in self.cuts:
            return super().scan_memory(update, matrix)
        # Without a carried state every step stands for itself.
        products = update.query * update.key
        o = products.sum(-1, keepdim=True) * update.value
        key = update.key[:, -1, ..., None]
        value = update.value[:, -1, ..., None, :]
        return o, key * value

    def output(self, o: Tensor, z: Parts, update: Update) -> Tensor:
        h = normed(o.flatten(-2), self.w.norm)
        return h @ self.w.out
