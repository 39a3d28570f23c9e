r"""Gated linear attention (GLA): the decay of every key channel reads the token.

    q_t = W_q x_t / √K        k_t = W_k x_t        v_t = W_v x_t
    α_t = σ( W_α2 W_α1 x_t + b_α )^(1/16)             rank 16, one value per key channel
    S_t = diag(α_t) S_{t-1} + k_t v_tᵀ
    y_t = W_y ( N(S_tᵀ q_t) ⊙ swish(W_g x_t) )

S is (K, V) for each head, K = `expand_k` · V. The first three cuts are the rows of the published
ablation:

    0  vector   diag(α_t) → α_t: one α per head
    1  data     α_t = 1 − 2^(−5−h); diag(α_t) → α_t: `retention` without rotation, in head h
    2  decay    diag(α_t) S_{t-1} → S_{t-1}: linear attention
    3  gate     swish(W_g x_t) → 1
    4  norm     N(u) → u

Differences from the code of flash-linear-attention (`layers/gla.py`, bc3b101):

    there                              here                        why
    4 heads                            2 heads                     widths of 32 to 256
    models redraw at N(0, 0.02²)       U(±1/√fan-in) of the layer  `recipe.init=normal_0.02` does

Yang et al. 2024 (arXiv:2312.06635); N is RMSNorm per head, with the same scales for all heads.
"""

import math
from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, OwnDraw, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import MatrixCell, fixed_log_decays, head_size, linear, ones
from lmzoo.functional.matrix_state import Update

RANK = 16
TEMPERATURE = 16
"""The root of σ: α starts near 1."""
Cut = StrEnum("Cut", "VECTOR DATA DECAY GATE NORM")


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Drop the cuts of an α that another cut has removed."""
    if Cut.DECAY in cuts:
        return cuts - {Cut.DATA, Cut.VECTOR}
    return cuts - {Cut.VECTOR} if Cut.DATA in cuts else cuts


@CELLS("gla")
class GatedLinearAttention(MatrixCell):
    """Linear attention with a decay that depends on the token."""

    @config
    class Config:
        """Number of heads, size of the keys, and the cuts, by name or number."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
        expand_k: Annotated[float, Choice((0.5, 1.0))] = Field(0.5, gt=0, le=4)
        """K / V; K is rounded up."""
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()

    log_decay: Tensor | None

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        size, cuts = head_size(width, config.heads), config.cuts
        self.shape_state(config.heads, math.ceil(config.expand_k * size), size)
        keys, inner, rank = config.heads * self.keys, config.heads * size, min(RANK, width)
        columns = {"q": keys, "k": keys, "v": inner, "gate": inner, "low": rank}
        shapes = {name: (rows, width) for name, rows in columns.items()}
        shapes |= {"norm": (size,), "out": (width, inner)}
        rows = config.heads if Cut.VECTOR in cuts else keys
        shapes |= {"alpha": (rows, rank), "bias_alpha": (rows,)}
        cut = {name for name in ("gate", "norm") if name in cuts}
        fixed = bool(cuts & {Cut.DATA, Cut.DECAY})
        cut |= {"low", "alpha", "bias_alpha"} if fixed else set()
        own: dict[str, OwnDraw] = {"norm": ones, "out": linear(inner)}
        own |= {"alpha": linear(rank), "bias_alpha": linear(rank)}
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, set(columns) - cut)
        decays = [0.0] * config.heads if Cut.DECAY in cuts else fixed_log_decays(config.heads)
        self.register_buffer("log_decay", torch.tensor(decays) if fixed else None, persistent=False)

    def update(self, z: dict[str, Tensor]) -> Update:
        q, k, v = (self.split_heads(z[name]) for name in ("q", "k", "v"))
        if self.log_decay is not None:
            log_decay = self.log_decay[:, None].expand(*q.shape[:-1], 1)
        else:
            logit = nn.functional.linear(z["low"], self.w.alpha, self.w.bias_alpha)
            log_decay = self.split_heads(nn.functional.logsigmoid(logit) / TEMPERATURE)
        return Update(q / self.keys**0.5, k, v, log_decay)
