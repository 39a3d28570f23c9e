"""Diagonal linear recurrences: the LRU and the RG-LRU."""

import math
from enum import StrEnum
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import softplus

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell, Inputs, OutputAndState, OwnDraw, State, Weights, affine
from lmzoo.cells.cuts import ZeroWeights, cuts_of, removed
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.functional.linear_recurrence import linear_recurrence
from lmzoo.functional.parameters import unit_normal
from lmzoo.types import Shape

LRUCut = StrEnum("LRUCut", "PHASE NORMALISER EXPONENTIAL SKIP CARRY")
UNCARRIED = {LRUCut.CARRY: [LRUCut.PHASE, LRUCut.EXPONENTIAL]}
LEAST = 1e-6
"""Least uniform number, because its logarithm is a weight."""


LRU_WEIGHTS = {
    LRUCut.PHASE: {"theta"},
    LRUCut.NORMALISER: {"gamma"},
    LRUCut.SKIP: {"d"},
    LRUCut.CARRY: {"nu", "theta"},
}
"""The weights that go with a cut."""


@CELLS("lru")
class LRU(DiagonalCell):
    """A linear recurrence with one complex decay per unit.

        s_t = λ ⊙ s_{t-1} + γ ⊙ (x_t B)        λ = exp( −exp(ν) ) exp( i exp(θ) )
        y_t = Re( s_t C ) + D ⊙ x_t

    s, λ, B and C are complex, (H), (H), (H, H), (H, H); γ and D are real. |λ| < 1 for all ν, so s
    is stable. λ starts uniform by area in the ring r_min <= |λ| <= r_max, with phases in [0,
    max_phase], and γ as √(1 − |λ|²), which gives s the scale of its inputs. B ~ N(0, 1/2H) and C ~
    N(0, 1/H), real and imaginary part each; D ~ N(0, 1). A cut removes a term:

        0  phase        exp( i exp(θ) ) → 1: λ is real      3  skip   D ⊙ x_t
        1  normaliser   γ → 1                               4  carry  λ ⊙ s_{t-1}
        2  exponential  exp( −exp(ν) ) → ν; exp(θ) → θ: |λ| is not bounded

    The initial state is (Re s_0, Im s_0).

    Differences from the paper's appendix A:

        there                              here                        why
        a gated linear unit after it       none                        the block has one

    Orvieto et al. 2023 (arXiv:2303.06349).
    """

    num_state_vectors = 2

    @config
    class Config:
        """The cuts, by name or number, and the ring of the initial eigenvalues."""

        cuts: Annotated[frozenset[LRUCut], cuts_of(LRUCut, UNCARRIED)] = frozenset()
        r_min: float = Field(0.0, ge=0, lt=1)
        r_max: float = Field(1.0, gt=0, le=1)
        max_phase: float = Field(6.28, gt=0, allow_inf_nan=False)

        @model_validator(mode="after")
        def _ring_is_not_empty(self) -> Any:
            if self.r_min >= self.r_max:
                raise UserError(f"r_min={self.r_min} must be less than r_max={self.r_max}")
            return self

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        h = width
        own: dict[str, OwnDraw] = {
            "nu": self._draw_nu,
            "theta": self._draw_theta,
            "gamma": self._draw_gamma,
            "b_re": _half_normal,
            "b_im": _half_normal,
            "c_re": unit_normal,
            "c_im": unit_normal,
            "d": torch.randn,
        }
        shapes = dict.fromkeys(own, (h,))
        maps = ("b_re", "b_im", "c_re", "c_im")
        shapes |= dict.fromkeys(maps, (h, h))
        cut = removed(LRU_WEIGHTS, self.cuts)
        self.w = Weights(shapes, cut, fan_in=h, own=own)

    def _draw_nu(self, shape: Shape) -> Tensor:
        """Draw |λ|², uniform in the ring's range."""
        # Uniform on the area of the ring, so in the square of the radius.
        low = self.config.r_min**2
        high = self.config.r_max**2
        # Not at the edges: their logarithms are infinite.
        uniform = torch.empty(shape).uniform_(LEAST, 1 - LEAST)
        square = low + (high - low) * uniform
        # γ is drawn after λ and depends on it.
        self._radius = square.sqrt()
        bounded = LRUCut.EXPONENTIAL not in self.cuts
        # exp(−exp ν) is below 1 for every ν; a plain radius may leave the circle.
        if bounded:
            rate = -self._radius.log()
            return rate.log()
        return self._radius

    def _draw_gamma(self, shape: Shape) -> Tensor:
        """Return log √(1 − |λ|²) of the λ that were drawn."""
        # √(1 − |λ|²) keeps the size of the state that of the inputs.
        lost = 1 - self._radius**2
        return lost.log() / 2

    def _draw_theta(self, shape: Shape) -> Tensor:
        turn = torch.empty(shape).uniform_(LEAST, 1)
        phase = self.config.max_phase * turn
        if LRUCut.EXPONENTIAL in self.cuts:
            return phase
        return phase.log()

    def eigenvalues(self) -> Tensor:
        """Return λ, (H)."""
        nu = self.w.nu
        theta = self.w.theta
        radius = nu
        if LRUCut.EXPONENTIAL not in self.cuts:
            radius = torch.exp(-nu.exp())
        if theta is None:
            # A real radius: no turn.
            phase = torch.zeros_like(nu)
        elif LRUCut.EXPONENTIAL in self.cuts:
            phase = theta
        else:
            phase = theta.exp()
        real = radius * phase.cos()
        imaginary = radius * phase.sin()
        return torch.complex(real, imaginary)

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        weight = torch.cat([w.b_re, w.b_im], 1)
        inputs = x @ weight
        if w.gamma is not None:
            # Real and imaginary columns have the same scale.
            scale = w.gamma.exp()
            inputs = inputs * scale.repeat(2)
        if w.d is None:
            return inputs
        skipped = x * w.d
        return torch.cat([inputs, skipped], -1)

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        inputs = projected[..., : 2 * self.width]
        real, imaginary = inputs.chunk(2, -1)
        b = torch.complex(real.contiguous(), imaginary.contiguous())
        if LRUCut.CARRY in self.cuts:
            a = torch.zeros_like(b)
        else:
            a = self.eigenvalues().expand_as(b)
        return a, b

    def read(self, s: Tensor, projected: Tensor, before: Tensor | None) -> Tensor:
        w = self.w
        # The real part of C s: y is real.
        y = s.real @ w.c_re - s.imag @ w.c_im
        if w.d is None:
            return y
        return y + projected[..., 2 * self.width :]

    def join(self, state: State) -> Tensor:
        real, imaginary = state
        return torch.complex(real.contiguous(), imaginary.contiguous())

    def split(self, s: Tensor) -> State:
        return s.real, s.imag


def _half_normal(shape: Shape) -> Tensor:
    """Draw from N(0, 1/2H), the real or the imaginary part of N(0, 1/H)."""
    # Real and imaginary parts together have variance 1.
    return unit_normal(shape) / math.sqrt(2)


RGLRUCut = StrEnum(
    "RGLRUCut",
    "INPUT_TO_RECURRENCE RECURRENCE_BIAS INPUT_TO_INPUT_GATE INPUT_GATE_BIAS RECURRENCE_GATE "
    "INPUT_GATE ROOT CARRY",
)
WEIGHTS = list(RGLRUCut)[:4]
"""Cuts that equal a weight of zero, in the order of the weights."""
RING = (0.9, 0.999)
"""Range of exp(−softplus(Λ)) of the initial Λ."""
UNDECAYED = {RGLRUCut.CARRY, RGLRUCut.ROOT}
"""Cuts that leave a without effect."""
MARGIN = 1e-6
"""Least 1 − a² in the root."""


def canonical(cuts: frozenset[RGLRUCut]) -> frozenset[RGLRUCut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    if cuts >= UNDECAYED:
        # Without the carry and the root, the recurrence gate multiplies nothing.
        cuts = cuts | {RGLRUCut.RECURRENCE_GATE}
    if RGLRUCut.RECURRENCE_GATE in cuts:
        cuts = cuts - {RGLRUCut.INPUT_TO_RECURRENCE, RGLRUCut.RECURRENCE_BIAS}
    if RGLRUCut.INPUT_GATE in cuts:
        cuts = cuts - {RGLRUCut.INPUT_TO_INPUT_GATE, RGLRUCut.INPUT_GATE_BIAS}
    return cuts


@CELLS("rg_lru")
class RGLRU(Cell):
    """A diagonal recurrence whose decay and input are gated by the token.

        r_t = σ( x_t W_a + b_a )              recurrence gate
        i_t = σ( x_t W_x + b_x )              input gate
        a_t = exp( −c softplus(Λ) r_t )       decay; c is 8
        h_t = a_t ⊙ h_{t-1} + √(1 − a_t²) ⊙ i_t ⊙ x_t;  h_1 = a_1 ⊙ h_0 + i_1 ⊙ x_1

    The unit multiplies its input by no matrix: channels meet only in the gates. In Griffin a linear
    map before it does this. A cut replaces a term:

        0  input_to_recurrence    x_t W_a → 0         4  recurrence_gate    r_t → 1
        1  recurrence_bias        b_a → 0             5  input_gate         i_t → 1
        2  input_to_input_gate    x_t W_x → 0         6  root               √(1 − a_t²) → 1
        3  input_gate_bias        b_x → 0             7  carry              a_t ⊙ h_{t-1} → 0

    Λ starts such that the squares of exp(−softplus(Λ)) are uniform in [0.9², 0.999²], matrices with
    variance 1 / H, biases at 0.

    Differences from the code of recurrentgemma (`torch/layers.py`, 2efa84d):

        there                              here                        why
        block-diagonal W_a and W_x         full                        one block at widths below 256
        the root's gradient is at most     √(max(1 − a², 10⁻⁶)),       a gradient of the function
        1000                               gradient at most 500        that is computed

    De et al. 2024 (arXiv:2402.19427).
    """

    zero_start = 1.0

    @config
    class Config(ZeroWeights):
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        zero_weights = frozenset(WEIGHTS)
        cuts: Annotated[frozenset[RGLRUCut], cuts_of(RGLRUCut, canonical)] = frozenset()
        c: float = Field(8.0, gt=0, allow_inf_nan=False)
        """The constant c of the decay."""

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        h = width
        shapes = {
            "wa": (h, h),
            "ba": (h,),
            "wx": (h, h),
            "bx": (h,),
            "decay": (h,),
        }
        paths = zip(shapes, WEIGHTS, strict=False)
        cut = {name for name, path in paths if path in self.cuts}
        if RGLRUCut.RECURRENCE_GATE in self.cuts:
            cut |= {"wa", "ba"}
        if RGLRUCut.INPUT_GATE in self.cuts:
            cut |= {"wx", "bx"}
        own = {
            "wa": unit_normal,
            "wx": unit_normal,
            "decay": _draw_decay,
            "ba": torch.zeros,
            "bx": torch.zeros,
        }
        if self.cuts >= UNDECAYED:
            cut |= {"decay"}
        self.w = Weights(shapes, cut, fan_in=h, biases={"ba", "bx"}, own=own)

    def project(self, x: Tensor) -> Tensor:
        parts = [x]
        w = self.w
        if RGLRUCut.RECURRENCE_GATE not in self.cuts:
            parts.append(affine(x, w.wa, w.ba))
        if RGLRUCut.INPUT_GATE not in self.cuts:
            parts.append(affine(x, w.wx, w.bx))
        return torch.cat(parts, -1)

    def _coefficients(self, projected: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return a and b; the root of a token is 1 where `first` is true."""
        parts = projected.split(self.width, -1)
        x = parts[0]
        b = x
        # In the order of `project`: x, then the logits of gates that are there.
        if RGLRUCut.INPUT_GATE not in self.cuts:
            b = parts[-1].sigmoid() * x
        if self.w.decay is None:
            return torch.zeros_like(x), b
        # In logarithms: a power near 1 would lose digits.
        rate = softplus(self.w.decay)
        log_a = -self.config.c * rate
        if RGLRUCut.RECURRENCE_GATE in self.cuts:
            log_a = log_a.expand_as(x)
        else:
            log_a = log_a * parts[1].sigmoid()
        if first is not None:
            # Near a = 1 the root's gradient has no bound; the margin gives it one.
            square = -torch.expm1(2 * log_a)
            root = square.clamp_min(MARGIN).sqrt()
            # The first token is not scaled: there is no state that it would have to match.
            b = torch.where(first, b, b * root)
        if RGLRUCut.CARRY in self.cuts:
            a = torch.zeros_like(x)
        else:
            a = log_a.exp()
        return a, b

    def initial_state(self, start: Tensor) -> State:
        """Return h_0, and the number of tokens read if the first one has no root."""
        h = self.shift_start(start)
        if self._marks_first:
            return h, start.new_zeros(len(start), 1)
        return (h,)

    @property
    def _marks_first(self) -> bool:
        return RGLRUCut.ROOT not in self.cuts

    @property
    def state_size(self) -> int:
        return self.width + self._marks_first

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        first = None
        if self._marks_first:
            first = state[1] == 0
        a, b = self._coefficients(projected, first)
        h = a * state[0] + b
        return h, self._after(h, state, 1)

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState:
        h = state[0]
        projected = self.project_inputs(x)
        first = None
        if self._marks_first:
            # Positions of this call; the state counts those of calls before.
            count = projected.shape[1]
            steps = torch.arange(count, device=h.device)
            begins = steps[:, None] == 0
            first = (state[1][:, None] == 0) & begins
        a, b = self._coefficients(projected, first)
        s = linear_recurrence(a, b, h)
        last = self._after(s[:, -1], state, s.shape[1])
        return s, last

    def _after(self, h: Tensor, state: State, steps: int) -> State:
        if self._marks_first:
            return h, state[1] + steps
        return (h,)


def _draw_decay(shape: Shape) -> Tensor:
    """Return Λ, whose exp(−softplus(Λ)) is uniform by area in the ring."""
    low, high = RING
    square = torch.empty(shape).uniform_(low**2, high**2)
    odds = 1 / square.sqrt() - 1
    return odds.log()
