r"""The hierarchically gated recurrent network with state expansion (HGRN2), and its six cuts.

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

    there                              here                        why
    γ rises with the layer, from 0     learned for each channel,   a cell does not know its depth
                                       from ½
    heads of 128 channels              1 head                      widths of 32 to 256

Qin et al. 2024 (arXiv:2404.07904); Qin et al. 2023 (arXiv:2311.04823).
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid, silu

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Inputs, State, Weights
from lmzoo.cells.cuts import cuts_of, numbered
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.functional.matrix_state import Update, matrix_scan

Cut = StrEnum("Cut", "LOWER_BOUND INPUT_TO_FORGET TIED_WRITE QUERY SQUASH CARRY NORM")
SMALL = 16
"""The largest heads for which the elementwise scan is faster than that in chunks, on a CPU."""


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the one set of cuts that stands for all sets with the same function.

    Raises:
        UserError: f would be zero at every step.
    """
    none = {Cut.LOWER_BOUND, Cut.INPUT_TO_FORGET}
    if cuts >= none:
        raise UserError(f"cuts {numbered(none)} leave f = 0 at every step; use the cut carry (5)")
    return cuts - {Cut.SQUASH} if Cut.QUERY in cuts else cuts


@CELLS("hgrn2")
class HGRN2(DiagonalCell):
    """A linear recurrence with one matrix as the state of each head, and decays by row."""

    num_state_vectors = 2

    @config
    class Config:
        """The cuts, by name or number, and the number of heads."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()
        heads: int = Field(1, ge=1)

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        if width % config.heads:
            raise UserError(f"heads={config.heads} must divide width={width}")
        self.cuts, h = config.cuts, width
        shapes = {"xf": (h, h), "xq": (h, h), "xv": (h, h), "bound": (h,), "norm": (h,)}
        shapes |= {"out": (h, h)}
        paths = {
            "bound": Cut.LOWER_BOUND, "xf": Cut.INPUT_TO_FORGET, "xq": Cut.QUERY, "norm": Cut.NORM,
        }  # fmt: skip
        cut = {name for name, path in paths.items() if path in self.cuts}
        if self.cuts >= {Cut.TIED_WRITE, Cut.CARRY}:  # f has no effect
            cut |= {"bound", "xf"}
        self.w = Weights(shapes, cut, fan_in=h, own={"bound": torch.zeros, "norm": torch.ones})
        self.names = [name for name in ("xv", "xf", "xq") if name not in cut]

    @property
    def state_size(self) -> int:
        return self.width**2 // self.config.heads

    def initial_state(self, start: Tensor) -> State:
        vectors = self.shift_start(start).chunk(2, dim=-1)
        key, value = (self._by_head(part) for part in vectors)
        return ((key[..., :, None] * value[..., None, :]).flatten(1),)

    def project(self, x: Tensor) -> Tensor:
        return x @ torch.cat([getattr(self.w, name) for name in self.names], dim=1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        parts, bound = self._parts(projected), self.w.bound
        if "xf" not in parts:
            if bound is None:
                return {}
            return {"f": torch.sigmoid(bound).expand_as(parts["xv"])}
        f = torch.sigmoid(parts["xf"])
        if bound is None:
            return {"f": f}
        gamma = torch.sigmoid(bound)
        return {"f": gamma + (1 - gamma) * f}

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        value = self._by_head(self._parts(projected)["xv"])[..., None, :]
        ones = torch.ones_like(value.mT)
        f = self._by_head(self.gates(projected, ()).get("f", projected[..., : self.width]))
        f = f[..., None]
        b = (ones if Cut.TIED_WRITE in self.cuts else 1 - f) * value
        a = torch.zeros_like(b) if Cut.CARRY in self.cuts else f.expand_as(b)
        return a.flatten(-3), b.flatten(-3)

    def read(self, s: Tensor, projected: Tensor, before: Tensor | None) -> Tensor:
        state = s.unflatten(-1, (self.config.heads, -1, self.width // self.config.heads))
        return self._leave((self._query(self._parts(projected))[..., None, :] @ state).flatten(-3))

    def fast_scan_from(self, x: Inputs, state: State) -> tuple[Tensor, State] | None:
        """Scan large heads in chunks: the cell is gated linear attention with keys 1 − f."""
        if Cut.CARRY in self.cuts or self.width // self.config.heads <= SMALL:
            return super().fast_scan_from(x, state)
        projected = self.project_inputs(x)
        parts = self._parts(projected)
        log_f = self._by_head(self._log_forget(parts))
        value = self._by_head(parts["xv"])
        key = torch.ones_like(value) if Cut.TIED_WRITE in self.cuts else -torch.expm1(log_f)
        matrix = state[0].unflatten(-1, (*value.shape[-2:], -1))
        o, matrix = matrix_scan(Update(self._query(parts), key, value, log_f), matrix)
        return self._leave(o.flatten(-2)), (matrix.flatten(1),)

    def _log_forget(self, parts: dict[str, Tensor]) -> Tensor:
        """Return log f, which is finite where f underflows."""
        bound = self.w.bound
        if "xf" not in parts:
            return logsigmoid(bound).expand_as(parts["xv"])
        log_f = logsigmoid(parts["xf"])
        if bound is None:
            return log_f
        return torch.logaddexp(logsigmoid(bound), logsigmoid(-bound) + log_f)

    def _query(self, parts: dict[str, Tensor]) -> Tensor:
        """Return q by head."""
        q = parts.get("xq")
        if q is None:
            q = torch.ones_like(parts["xv"])
        elif Cut.SQUASH not in self.cuts:
            q = silu(q)
        q = self._by_head(q)
        return q / q.shape[-1] ** 0.5

    def _leave(self, h: Tensor) -> Tensor:
        """Return N(h) W_h."""
        if self.w.norm is not None:
            h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5) * self.w.norm
        return h @ self.w.out

    def _parts(self, projected: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.names, projected.split(self.width, dim=-1), strict=True))

    def _by_head(self, vectors: Tensor) -> Tensor:
        return vectors.unflatten(-1, (self.config.heads, -1))
