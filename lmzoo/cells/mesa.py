"""MesaNet: a matrix as state that is the optimum of a least-squares problem."""

import math
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, State
from lmzoo.cells.cuts import cuts_of, removed
from lmzoo.cells.draws import WINDOW, linear, ones, taps
from lmzoo.cells.matrix import Drawn, MatrixCell, head_size
from lmzoo.functional.linear_recurrence import linear_recurrence
from lmzoo.functional.matrix_state import Update
from lmzoo.functional.normalise import unit
from lmzoo.functional.precision import single

MesaCut = StrEnum("MesaCut", "BETA GAMMA CONVOLUTION UNIT NORM SOLVE RIDGE")
LEAST = 0.25
"""The least ridge."""
START = math.log(math.expm1(1 - LEAST))
"""λ with softplus(λ) + ¼ = 1."""


WEIGHTS = {
    MesaCut.BETA: {"beta", "bias_beta"},
    MesaCut.GAMMA: {"gamma", "bias_gamma"},
    MesaCut.CONVOLUTION: {"conv"},
    MesaCut.NORM: {"norm"},
    MesaCut.SOLVE: {"ridge"},
    MesaCut.RIDGE: {"ridge"},
}
"""The weights that go with a cut."""


@CELLS("mesa")
class Mesa(MatrixCell):
    """Linear attention whose query solves for the weights of the keys so far.

        q_t = unit(SiLU(conv(W_q x_t)))         k_t = unit(SiLU(conv(W_k x_t)))     v_t = W_v x_t
        β_t = σ(W_β x_t + b_β)                  γ_t = σ(W_γ x_t + b_γ)
        H_t = γ_t H_{t-1} + β_t k_t k_tᵀ        (K, K) in each head, H_0 = 0
        S_t = γ_t S_{t-1} + β_t k_t v_tᵀ        (K, V)
        y_t = W_y N( S_tᵀ (H_t + Λ)^(−1) q_t )        Λ = diag( softplus(λ) + ¼ )

    S_tᵀ (H_t + Λ)^(−1) is the matrix with the least Σ_s β_s Π_{r>s} γ_r ‖W k_s − v_s‖² + tr(W Λ Wᵀ)
    from S_0 = 0. β and γ are one number per head; Λ starts at 1. Cuts:

        0  beta          β_t → 1                                  3  unit    unit(u) → u
        1  gamma         γ_t → 1                                  4  norm    N(u) → u
        2  convolution   conv(u) → u: q and k read one token      6  ridge   Λ → 1
        5  solve         (H_t + Λ)^(−1) q_t → q_t: gated linear attention

    Differences from the code of flash-linear-attention (`layers/mesa_net.py`, 0315a70):

        there                              here                        why
        30 steps of conjugate gradients    solved exactly              heads of 16 to 128 channels
        16 heads                           2 heads                     widths of 32 to 256
        models redraw at N(0, 0.02²)       U(±1/√fan-in)              `recipe.init=normal_0.02` does

    von Oswald et al. 2025 (arXiv:2506.05233); N is RMSNorm per head, with the same scales for all.
    """

    convolved = ("q", "k")

    @config
    class Config:
        """Number of heads, and the cuts, by name or number."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
        cuts: Annotated[frozenset[MesaCut], cuts_of(MesaCut, {MesaCut.SOLVE: [MesaCut.RIDGE]})] = (
            frozenset()
        )

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        n = config.heads
        size = head_size(width, config.heads)
        self.shape_state(n, size, size)
        inner = n * size
        weights: dict[str, int | Drawn] = {
            "q": inner,
            "k": inner,
            "v": inner,
            "beta": n,
            "gamma": n,
            "conv": ((2 * inner, WINDOW), taps),
            "bias_beta": ((n,), linear(width)),
            "bias_gamma": ((n,), linear(width)),
            "ridge": ((inner,), partial(torch.full, fill_value=START)),
            "norm": ((size,), ones),
            "out": ((width, inner), linear(inner)),
        }
        self.set_weights(weights, removed(WEIGHTS, config.cuts))

    @property
    def _solves(self) -> bool:
        return MesaCut.SOLVE not in self.config.cuts

    def initial_memory(self, start: Tensor) -> State:
        """Return the window and H_0."""
        size = self.heads * self.keys**2
        if self._solves:
            matrix = (start.new_zeros(len(start), size),)
        else:
            matrix = ()
        return (*super().initial_memory(start), *matrix)

    def prepare(self, projected: Tensor, memory: State) -> tuple[dict[str, Tensor], State]:
        """Return the named projections, with (H + Λ)^(−1) q in the place of q, and the memory."""
        *window, before = memory if self._solves else (*memory, projected)
        z, window = super().prepare(projected, tuple(window))
        q, k = (self.split_heads(z[name]) for name in self.convolved)
        if MesaCut.UNIT not in self.config.cuts:
            q = unit(q)
            k = unit(k)
        log_gamma, beta = self._gates(z, k)
        if not self._solves:
            return {**z, "q": q.flatten(-2), "k": k.flatten(-2)}, window
        products = (beta * k)[..., None] * k[..., None, :]
        kept = log_gamma.exp()[..., None].expand_as(products)
        h = linear_recurrence(kept.flatten(-3), products.flatten(-3), before)
        ridge = torch.ones_like(q)
        if self.w.ridge is not None:
            ridge = ridge * (softplus(self.w.ridge) + LEAST).view(self.heads, -1)
        system = h.unflatten(-1, products.shape[-3:]) + torch.diag_embed(ridge)
        q = _solve(system, q)
        return {**z, "q": q.flatten(-2), "k": k.flatten(-2)}, (*window, h[:, -1])

    def _gates(self, z: dict[str, Tensor], like: Tensor) -> tuple[Tensor, Tensor]:
        """Return log γ and β, (*N, n, 1)."""
        one = torch.ones_like(like[..., :1])
        log_gamma = torch.zeros_like(one)
        beta = one
        if "gamma" in z:
            log_gamma = logsigmoid(z["gamma"] + self.w.bias_gamma)[..., None]
        if "beta" in z:
            beta = torch.sigmoid(z["beta"] + self.w.bias_beta)[..., None]
        return log_gamma, beta

    def update(self, z: dict[str, Tensor]) -> Update:
        q, k, v = (self.split_heads(z[name]) for name in ("q", "k", "v"))
        log_gamma, beta = self._gates(z, k)
        return Update(q, beta * k, v, log_gamma)


def _solve(system: Tensor, q: Tensor) -> Tensor:
    """Return system^(−1) q; in single precision at least, because LAPACK has no half."""
    solved: Any = torch.linalg.solve(single(system), single(q)[..., None])
    return solved[..., 0].to(q.dtype)
