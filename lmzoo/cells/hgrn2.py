r"""The hierarchically gated recurrent network with state expansion (HGRN2), and its six cuts.

    f_t = γ + (1 − γ) ⊙ σ( x_t W_f )                  forget gate
    γ = σ( Γ )                                        its lower bound
    q_t = silu( x_t W_q )                             query
    S_t = diag(f_t) S_{t-1} + (1 − f_t)ᵀ (x_t W_v)    state, (d, d) in each head
    h_t = q_t S_t

d = H / heads; heads=H is an elementwise recurrence, as in HGRN. S_0 is the outer product of two
vectors of each head. A cut replaces a term:

    0  lower_bound      γ → 0                                  3  query     q_t → 1ᵀ
    1  input_to_forget  (1 − γ) ⊙ σ( x_t W_f ) → 0: f = γ      4  squash    silu(u) → u
    2  tied_write       (1 − f_t)ᵀ → 1ᵀ                        5  carry     diag(f_t) S_{t-1}

The published network derives γ from the depth of a layer, 0 in the first one; here it is learned
and starts at ½. It also normalises h and multiplies it by a matrix; a cell has neither.

Qin et al. 2024 (arXiv:2404.07904); Qin et al. 2023 (arXiv:2311.04823).
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid, silu

from lmzoo.cells.base import CELLS, Inputs, State, Weights
from lmzoo.cells.cuts import cuts_of, numbered
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.config import config
from lmzoo.errors import UserError
from lmzoo.functional.matrix_state import Update, matrix_scan


class Cut(StrEnum):
    """A term of the recurrence that can be removed; its number is its position."""

    LOWER_BOUND = "lower_bound"  # f = σ(x W_f)
    INPUT_TO_FORGET = "input_to_forget"  # f = γ: a constant decay
    TIED_WRITE = "tied_write"  # S = diag(f) S + 1ᵀ (x W_v)
    QUERY = "query"  # h = 1 S
    SQUASH = "squash"  # q = x W_q
    CARRY = "carry"  # S = (1 − f)ᵀ (x W_v): no memory


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
        shapes = {"xf": (h, h), "xq": (h, h), "xv": (h, h), "bound": (h,)}
        paths = {"bound": Cut.LOWER_BOUND, "xf": Cut.INPUT_TO_FORGET, "xq": Cut.QUERY}
        cut = {name for name, path in paths.items() if path in self.cuts}
        if self.cuts >= {Cut.TIED_WRITE, Cut.CARRY}:  # f has no effect
            cut |= {"bound", "xf"}
        self.w = Weights(shapes, cut, fan_in=h, own={"bound": torch.zeros})
        self.names = [name for name in ("xv", "xf", "xq") if name not in cut]

    @property
    def state_size(self) -> int:
        return self.width**2 // self.config.heads

    def initial_state(self, start: Tensor) -> State:
        key, value = (self._by_head(vectors) for vectors in start.chunk(2, dim=-1))
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
        return (self._query(self._parts(projected))[..., None, :] @ state).flatten(-3)

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
        return o.flatten(-2), (matrix.flatten(1),)

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
        """Return q by head; ones without a query."""
        q = parts.get("xq")
        if q is None:
            return torch.ones_like(self._by_head(parts["xv"]))
        return self._by_head(q if Cut.SQUASH in self.cuts else silu(q))

    def _parts(self, projected: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.names, projected.split(self.width, dim=-1), strict=True))

    def _by_head(self, vectors: Tensor) -> Tensor:
        return vectors.unflatten(-1, (self.config.heads, -1))
