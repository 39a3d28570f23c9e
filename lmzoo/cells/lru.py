r"""The linear recurrent unit (LRU): a diagonal complex linear recurrence, and its five cuts.

    s_t = λ ⊙ s_{t-1} + γ ⊙ (x_t B)        λ = exp( −exp(ν) ) exp( i exp(θ) )
    y_t = Re( s_t C ) + D ⊙ x_t

s, λ, B and C are complex, (H), (H), (H, H), (H, H); γ and D are real. |λ| < 1 for all ν, so s is
stable. λ starts uniform by area in the ring r_min <= |λ| <= r_max, with phases in [0, max_phase],
and γ as √(1 − |λ|²), which gives s the scale of its inputs. B ~ N(0, 1/2H) and C ~ N(0, 1/H), real
and imaginary part each; D ~ N(0, 1). A cut removes a term:

    0  phase          exp( i exp(θ) ) → 1: λ is real                        3  skip    D ⊙ x_t
    1  normaliser     γ → 1                                                 4  carry   λ ⊙ s_{t-1}
    2  exponential    exp( −exp(ν) ) → ν; exp(θ) → θ: |λ| is not bounded

The initial state is (Re s_0, Im s_0).

Differences from the paper's appendix A:

    there                              here                        why
    a gated linear unit after it       none                        the block has one

Orvieto et al. 2023 (arXiv:2303.06349).
"""

import math
from enum import StrEnum
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.functional.initialisers import unit_normal

Cut = StrEnum("Cut", "PHASE NORMALISER EXPONENTIAL SKIP CARRY")


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    return cuts - {Cut.PHASE, Cut.EXPONENTIAL} if Cut.CARRY in cuts else cuts


LEAST = 1e-6
"""Least uniform number, because its logarithm is a weight."""


@CELLS("lru")
class LRU(DiagonalCell):
    """A linear recurrence with one complex decay per unit."""

    num_state_vectors = 2

    @config
    class Config:
        """The cuts, by name or number, and the ring of the initial eigenvalues."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()
        r_min: float = Field(0.0, ge=0, lt=1)
        r_max: float = Field(1.0, gt=0, le=1)
        max_phase: float = Field(6.28, gt=0, allow_inf_nan=False)

        @model_validator(mode="after")
        def _ring_is_not_empty(self) -> Any:
            if self.r_min >= self.r_max:
                raise UserError(f"r_min={self.r_min} must be less than r_max={self.r_max}")
            return self

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts, h = config.cuts, width
        ring = _Ring(config.r_min, config.r_max, config.max_phase, config.cuts)
        own = {
            "nu": ring.draw_nu,
            "theta": ring.draw_theta,
            "gamma": ring.draw_gamma,
            "b_re": ring.draw_input,
            "b_im": ring.draw_input,
            "c_re": unit_normal,
            "c_im": unit_normal,
            "d": torch.randn,
        }
        shapes = {name: (h, h) if name[1:2] == "_" else (h,) for name in own}
        absent = {
            Cut.PHASE: {"theta"}, Cut.NORMALISER: {"gamma"}, Cut.SKIP: {"d"},
            Cut.CARRY: {"nu", "theta"},
        }  # fmt: skip
        cut = set[str]().union(*(absent.get(path, set()) for path in self.cuts))
        self.w = Weights(shapes, cut, fan_in=h, own=own)

    def eigenvalues(self) -> Tensor:
        """Return λ, (H)."""
        nu, theta = self.w.nu, self.w.theta
        if Cut.EXPONENTIAL in self.cuts:
            theta = torch.zeros_like(nu) if theta is None else theta
            return torch.complex(nu * torch.cos(theta), nu * torch.sin(theta))
        radius = torch.exp(-torch.exp(nu))
        phase = torch.zeros_like(nu) if theta is None else torch.exp(theta)
        return torch.complex(radius * torch.cos(phase), radius * torch.sin(phase))

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        inputs = x @ torch.cat([w.b_re, w.b_im], dim=1)
        if w.gamma is not None:
            inputs = inputs * torch.exp(w.gamma).repeat(2)
        return inputs if w.d is None else torch.cat([inputs, x * w.d], dim=-1)

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        real, imaginary = projected[..., : 2 * self.width].chunk(2, dim=-1)
        b = torch.complex(real.contiguous(), imaginary.contiguous())
        a = torch.zeros_like(b) if Cut.CARRY in self.cuts else self.eigenvalues().expand_as(b)
        return a, b

    def read(self, s: Tensor, projected: Tensor, before: Tensor | None) -> Tensor:
        y = s.real @ self.w.c_re - s.imag @ self.w.c_im
        return y if self.w.d is None else y + projected[..., 2 * self.width :]

    def join(self, state: State) -> Tensor:
        return torch.complex(*(part.contiguous() for part in state))

    def split(self, s: Tensor) -> State:
        return s.real, s.imag


class _Ring:
    """Draws of the eigenvalues, and of what depends on them or on the cuts."""

    def __init__(self, r_min: float, r_max: float, max_phase: float, cuts: frozenset[Cut]) -> None:
        self.squares, self.max_phase = (r_min**2, r_max**2), max_phase
        self.exponential = Cut.EXPONENTIAL not in cuts
        self._radius = torch.zeros(0)

    def draw_nu(self, shape: tuple[int, ...]) -> Tensor:
        """Draw |λ|², uniform in the ring's range."""
        low, high = self.squares
        square = low + (high - low) * torch.empty(shape).uniform_(LEAST, 1 - LEAST)
        self._radius = square.sqrt()
        return torch.log(-torch.log(self._radius)) if self.exponential else self._radius

    def draw_theta(self, shape: tuple[int, ...]) -> Tensor:
        """Draw the phase."""
        phase = self.max_phase * torch.empty(shape).uniform_(LEAST, 1)
        return phase.log() if self.exponential else phase

    def draw_gamma(self, shape: tuple[int, ...]) -> Tensor:
        """Return log √(1 − |λ|²) of the λ drawn before."""
        return torch.log(1 - self._radius**2) / 2

    @staticmethod
    def draw_input(shape: tuple[int, ...]) -> Tensor:
        return unit_normal(shape) / math.sqrt(2)
