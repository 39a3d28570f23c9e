"""The minimal GRU and the minimal LSTM, whose gates read the token only."""

from enum import StrEnum
from typing import Annotated, Any

import torch
from pydantic import StrictBool, model_validator
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Weights, affine
from lmzoo.cells.cuts import ZeroWeights, cuts_of, numbered
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.types import Shape

MinGRUCut = StrEnum(
    "MinGRUCut", "INPUT_TO_GATE GATE_BIAS INPUT_TO_CANDIDATE CANDIDATE_BIAS CARRY WRITE_GATE"
)
ZERO_WEIGHTS = list(MinGRUCut)[:4]
"""Cuts that equal a weight of zero."""
ALONE = (MinGRUCut.CARRY, MinGRUCut.WRITE_GATE)
"""Cuts that leave h = c: there is no gate."""
UNGATED = {ALONE: [MinGRUCut.INPUT_TO_GATE, MinGRUCut.GATE_BIAS]}
Candidate = StrEnum("Candidate", "POSITIVE LINEAR TANH")
"""The function g."""


def positive(u: Tensor) -> Tensor:
    """Return u + ½ where u >= 0, and σ(u) elsewhere."""
    # The published g, continuous and positive: a logarithm of states exists.
    return torch.where(u >= 0, u + 0.5, u.sigmoid())


FUNCTIONS = {
    Candidate.POSITIVE: positive,
    Candidate.LINEAR: torch.nn.Identity(),
    Candidate.TANH: torch.tanh,
}


def writes_zero(config: Any) -> bool:
    """Whether c = g(0) = 0; a `UserError` if nothing is carried either."""
    paths = ("input_to_candidate", "candidate_bias", "carry")
    none: set[Any] = {cut for cut in config.cuts if cut in paths}
    zero = none >= set(paths[:2])
    if not zero or config.candidate is Candidate.POSITIVE:
        # A positive candidate of zeros writes ½.
        return False
    if "carry" in none:
        raise UserError(f"cuts {numbered(none)} leave h = 0 at every step; remove one of them")
    return True


@CELLS("min_gru")
class MinGRU(DiagonalCell):
    """A recurrence with one gate that reads the token only; each of six terms can be cut.

        z_t = σ( x_t W_xz + b_z )                              state_to_gate=False: gate
            | σ( x_t W_xz + h_{t-1} W_hz + b_z )               state_to_gate=True
        c_t = g( x_t W_xh + b_h )                              candidate
        h_t = (1 − z_t) ⊙ h_{t-1} + z_t ⊙ c_t                  blend
        g(u) = u + ½ if u >= 0, else σ(u)                      candidate=positive, as published
             | u                                               candidate=linear
             | tanh(u)                                         candidate=tanh, as in the GRU

    A cut replaces a term by zero, or a gate by one:

        0  input_to_gate           x_t W_xz            3  candidate_bias       b_h
        1  gate_bias               b_z                 4  carry                (1 − z_t) ⊙ h_{t-1}
        2  input_to_candidate      x_t W_xh            5  write_gate           z_t ⊙ c_t → c_t

    Without input_to_gate (0) the state is an exponential moving average of the candidates. The
    authors remove a path of the GRU, h_{t-1} W_hz of the gate; `state_to_gate` puts it back. With
    it and candidate=tanh the cell is the minimal gated unit (`mgu`) without state_to_candidate.

    Differences from lucidrains' code (`minGRU.py`, 38b26e1):

        there                              here                        why
        no biases                          biases                      the paper's maps have them;
                                                                       cuts 1 and 3 remove them
        1.5 H columns, and a map back      H columns                   the state of all other cells
        computed with logarithms           products and sums           equal; no overflow below 1

    Feng et al. 2024 (arXiv:2410.01201).
    """

    @config
    class Config(ZeroWeights):
        """The cuts, by name or number, and two choices of the GRU that can be put back."""

        zero_weights = frozenset(ZERO_WEIGHTS)
        cuts: Annotated[frozenset[MinGRUCut], cuts_of(MinGRUCut, UNGATED)] = frozenset()
        candidate: Candidate = Candidate.POSITIVE
        state_to_gate: StrictBool = False
        """Put back the GRU's path h_{t-1} W_hz of the gate. The scan is then serial."""

        @model_validator(mode="after")
        def _one_config_per_function(self) -> Any:
            if writes_zero(self):
                # With c = 0 the write gate multiplies nothing: both configs are one function.
                object.__setattr__(self, "cuts", self.cuts - {MinGRUCut.WRITE_GATE})
            # Without a gate, no path to it has an effect.
            if self.cuts.issuperset(ALONE):
                object.__setattr__(self, "state_to_gate", False)
            return self

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        h = width
        shapes = {
            "xz": (width, h),
            "bz": (h,),
            "xh": (width, h),
            "bh": (h,),
            "hz": (h, h),
        }
        # In the order of the cuts, of which the first four are weights.
        paths = zip(shapes, MinGRUCut, strict=False)
        cut = {name for name, path in paths if path in self.cuts}
        if not config.state_to_gate:
            cut |= {"hz"}
        # With both cuts h = c: a gate has nothing to choose between.
        self.gated = not self.cuts.issuperset(ALONE)
        if not self.gated:
            cut |= {"xz", "bz"}
        self.w = Weights(shapes, cut, fan_in=width, biases={"bz", "bh"})

    @property
    def input_blind(self) -> bool:
        paths = {MinGRUCut.INPUT_TO_CANDIDATE}
        if self.gated:
            paths |= {MinGRUCut.INPUT_TO_GATE}
        return self.cuts >= paths

    @property
    def reads_state(self) -> bool:
        return self.config.state_to_gate

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        c = affine(x, w.xh, w.bh)
        if self.gated:
            logit = affine(x, w.xz, w.bz)
            return torch.cat([c, logit], -1)
        return c

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        g = FUNCTIONS[self.config.candidate]
        c = g(projected[..., : self.width])
        if not self.gated:
            return torch.zeros_like(c), c
        logit = projected[..., self.width :]
        hz = self.w.hz
        if hz is not None and s is not None:
            logit = logit + s @ hz
        z = logit.sigmoid()
        if MinGRUCut.CARRY in self.cuts:
            a = torch.zeros_like(z)
        else:
            a = 1 - z
        if MinGRUCut.WRITE_GATE in self.cuts:
            return a, c
        return a, z * c


MinLSTMCut = StrEnum(
    "MinLSTMCut",
    "INPUT_TO_FORGET FORGET_BIAS INPUT_TO_WRITE WRITE_BIAS INPUT_TO_CANDIDATE CANDIDATE_BIAS "
    "CARRY NORMALISER WRITE_GATE",
)
WEIGHTS = list(MinLSTMCut)[:6]
"""Cuts that equal a weight of zero, in the order of the weights."""


UNFORGOTTEN = {MinLSTMCut.CARRY, MinLSTMCut.NORMALISER}
"""Cuts that leave h = i ⊙ c: f has no effect."""
FORGET = frozenset(WEIGHTS[:2])
WRITE = frozenset(WEIGHTS[2:4])


def canonical(cuts: frozenset[MinLSTMCut]) -> frozenset[MinLSTMCut]:
    """Return the one set of cuts that stands for all sets with the same function.

    With write_gate (8), i has no weights and f + i = 1, so cuts 2, 3 and 7 have no effect. With
    carry (6) and normaliser (7), f has none. Two gates of ½ are one, without a write gate.
    """
    if cuts >= WRITE and (cuts >= FORGET or cuts >= UNFORGOTTEN):
        cuts = cuts | FORGET | {MinLSTMCut.WRITE_GATE}
    if MinLSTMCut.WRITE_GATE in cuts:
        cuts = cuts - WRITE - {MinLSTMCut.NORMALISER}
    if cuts >= UNFORGOTTEN:
        return cuts - FORGET
    return cuts


@CELLS("min_lstm")
class MinLSTM(DiagonalCell):
    """A recurrence with two normalised gates that read the token only.

        f_t = σ( x_t W_xf + b_f )        i_t = σ( x_t W_xi + b_i )         gates
        c_t = g( x_t W_xh + b_h )                                          candidate
        f'_t = f_t / (f_t + i_t)         i'_t = i_t / (f_t + i_t)          normaliser
        h_t = f'_t ⊙ h_{t-1} + i'_t ⊙ c_t

    g is that of the minimal GRU above. A cut replaces a term by zero:

        0  input_to_forget         x_t W_xf            4  input_to_candidate   x_t W_xh
        1  forget_bias             b_f                 5  candidate_bias       b_h
        2  input_to_write          x_t W_xi            6  carry                f'_t ⊙ h_{t-1}
        3  write_bias              b_i                 7  normaliser          f'_t → f_t; i'_t → i_t
        8  write_gate              i_t = 1 − f_t

    The authors' normaliser makes f' + i' = 1, so that the scale of h does not depend on the length.
    Without a write gate of its own (8) the normaliser has no effect, and the cell is the minimal
    GRU with z = 1 − f.

    Differences from lucidrains' code (`minLSTM.py`, 38b26e1):

        there                              here                        why
        no biases                          biases                      the paper's maps have them;
                                                                       cuts 1, 3 and 5 remove them
        1.5 H columns, and a map back      H columns                   the state of all other cells

    Feng et al. 2024 (arXiv:2410.01201).
    """

    @config
    class Config(ZeroWeights):
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        zero_weights = frozenset(WEIGHTS)
        cuts: Annotated[frozenset[MinLSTMCut], cuts_of(MinLSTMCut, canonical)] = frozenset()
        candidate: Candidate = Candidate.POSITIVE
        """The function g."""

        @model_validator(mode="after")
        def _one_config_per_function(self) -> Any:
            if writes_zero(self) and MinLSTMCut.NORMALISER in self.cuts:  # i has no effect
                object.__setattr__(self, "cuts", canonical(self.cuts | {MinLSTMCut.WRITE_GATE}))
            return self

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        h = width
        shapes = dict[str, Shape]()
        for name in "fih":
            shapes[f"x{name}"] = (width, h)
            shapes[f"b{name}"] = (h,)
        paths = zip(shapes, WEIGHTS, strict=True)
        cut = {name for name, path in paths if path in self.cuts}
        if MinLSTMCut.WRITE_GATE in self.cuts:
            cut |= {"xi", "bi"}
        if self.cuts >= UNFORGOTTEN:
            cut |= {"xf", "bf"}
        self.w = Weights(shapes, cut, fan_in=width, biases={"bf", "bi", "bh"})

    @property
    def input_blind(self) -> bool:
        paths = {MinLSTMCut.INPUT_TO_CANDIDATE}
        if not self.cuts >= UNFORGOTTEN:
            paths |= {MinLSTMCut.INPUT_TO_FORGET}
        if MinLSTMCut.WRITE_GATE not in self.cuts:
            paths |= {MinLSTMCut.INPUT_TO_WRITE}
        return self.cuts >= paths

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        f = affine(x, w.xf, w.bf)
        h = affine(x, w.xh, w.bh)
        # In the order in which `coefficients` reads them: f, the candidate, then i.
        parts = [f, h]
        if MinLSTMCut.WRITE_GATE not in self.cuts:
            parts.append(affine(x, w.xi, w.bi))
        return torch.cat(parts, -1)

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        parts = projected.split(self.width, -1)
        f = parts[0]
        u = parts[1]
        i = -f  # σ(−u) = 1 − σ(u)
        if MinLSTMCut.WRITE_GATE not in self.cuts:
            i = parts[2]
            if MinLSTMCut.NORMALISER not in self.cuts:
                f = logsigmoid(f) - logsigmoid(i)  # log f − log i, so that no gate underflows
                i = -f
        f = f.sigmoid()
        i = i.sigmoid()
        a = f
        if MinLSTMCut.CARRY in self.cuts:
            a = torch.zeros_like(f)
        c = FUNCTIONS[self.config.candidate](u)
        return a, i * c
