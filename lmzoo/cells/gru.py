"""The gated recurrent unit in three variants, with its cuts."""

from enum import StrEnum
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import linear, pad

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import (
    CELLS,
    Cell,
    Inputs,
    OutputAndState,
    State,
    Weights,
    all_gates,
    gate_shapes,
    keep_gates,
)
from lmzoo.cells.cuts import Cuts, numbered
from lmzoo.kernels.scan import find_recurrence, scan

Reset = StrEnum("Reset", "AFTER BEFORE INPUT")
"""The vector that r multiplies: h W_hn, h or x."""
Update = StrEnum("Update", "Z_KEEPS Z_WRITES")
"""Names of two forms of one model."""
Cut = StrEnum(
    "Cut",
    "INPUT_TO_RESET STATE_TO_RESET RESET_BIAS INPUT_TO_UPDATE STATE_TO_UPDATE UPDATE_BIAS "
    "INPUT_TO_CANDIDATE STATE_TO_CANDIDATE CANDIDATE_BIAS RESET UPDATE",
)
PATHS = list(Cut)[:9]
INTO_RESET = frozenset(PATHS[:3])
INTO_UPDATE = frozenset(PATHS[3:6])
INTO_CANDIDATE = frozenset(PATHS[6:])
"""Cuts of what a gate and the candidate read."""
WHOLE = {"r": Cut.RESET, "z": Cut.UPDATE}
"""The cut that removes a gate."""
ROWS = {"weight_ih": 0, "weight_hh": 1, "bias_ih": 2, "bias_hh": 2}
"""The place of a weight's cut among those of each gate."""
CONSTANT = 100.0
"""A bias, or its negative, at which a gate without weights is 1 or 0, with a slope of 0."""


@CELLS("gru")
class GRU(Cell):
    """A GRU layer.

        r_t = σ( x_t W_ir + h_{t-1} W_hr + b_r )
        z_t = σ( x_t W_iz + h_{t-1} W_hz + b_z )
        n_t = tanh( x_t W_in + b_in + r_t ⊙ (h_{t-1} W_hn + b_hn) )     reset=after
            | tanh( x_t W_in + b_in + (r_t ⊙ h_{t-1}) W_hn + b_hn )     reset=before
            | tanh( (r_t ⊙ x_t) W_in + b_in + h_{t-1} W_hn + b_hn )     reset=input
        h_t = (1 − z_t) ⊙ n_t + z_t ⊙ h_{t-1}

    reset=after is torch.nn.GRU. reset=before is the published form and that of S4. reset=input is
    the form printed in S3, a misprint: r gates the token instead of the state. The form h_t = z_t ⊙
    n_t + (1 − z_t) ⊙ h_{t-1} of some papers is the same model: −W_iz, −W_hz and −b_z map one to the
    other, and have the same initial law. So `update=z_writes` is read as `z_keeps`. Gates have the
    order r, z, n and two biases, as in torch.nn.GRU. Cuts:

        0  input_to_reset   x_t W_ir      6  input_to_candidate  x_t W_in; (r_t ⊙ x_t) W_in
        1  state_to_reset   h_{t-1} W_hr  7  state_to_candidate  h_{t-1} W_hn; (r_t ⊙ h_{t-1}) W_hn
        2  reset_bias       b_r           8  candidate_bias      b_in; b_hn
        3  input_to_update  x_t W_iz      9  reset               r_t → 1
        4  state_to_update  h_{t-1} W_hz  10  update             h_t = n_t
        5  update_bias      b_z

    Without the reset gate (9) it is the UGRNN of Collins et al. 2017, whose code adds 1 to b_z.

    Cho et al. 2014 (arXiv:1406.1078); Collins et al. 2017 (arXiv:1611.09913). Source: S0, S3, S4.
    """

    outputs_state = True

    @config
    class Config:
        """The variant, by default that of torch.nn.GRU, and the cuts, by name or number."""

        reset: Reset = Reset.AFTER
        update: Update = Update.Z_KEEPS
        cuts: Cuts[Cut] = Field(frozenset(), exclude_if=lambda cuts: not cuts)

        @model_validator(mode="after")
        def _one_config_per_function(self) -> Any:
            # Weights of z with the other sign are the other form, so both are one model.
            object.__setattr__(self, "update", Update.Z_KEEPS)
            cuts = self.cuts
            without = {
                Reset.AFTER: {Cut.STATE_TO_CANDIDATE, Cut.CANDIDATE_BIAS},
                Reset.BEFORE: {Cut.STATE_TO_CANDIDATE},
                Reset.INPUT: {Cut.INPUT_TO_CANDIDATE},
            }
            if cuts >= without[self.reset]:  # r multiplies nothing
                cuts = cuts | {Cut.RESET}
            for gate, into in ((Cut.RESET, INTO_RESET), (Cut.UPDATE, INTO_UPDATE)):
                if gate in cuts:
                    cuts = cuts - into
            if cuts >= INTO_CANDIDATE | {Cut.UPDATE}:
                raise UserError(
                    f"cuts {numbered(cuts)} leave h = 0 at every step; remove one of them"
                )
            # The instance is frozen.
            object.__setattr__(self, "cuts", cuts)
            return self

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        self.kept = {}
        cut = set()
        for name, place in ROWS.items():
            gates = self._gates_with(place)
            self.kept[name] = gates
            if not gates:
                cut.add(name)
        shapes = gate_shapes(width, gates=3)
        self.w = Weights(shapes, cut, fan_in=width, adjust=self._keep)

    def _gates_with(self, place: int) -> str:
        """Return the gates that have input weights (place 0), state weights (1) or biases (2)."""
        cuts = self.config.cuts
        kept = ""
        for gate, path in zip("rzn", PATHS[place::3], strict=True):
            # A gate that is cut has no weights at all.
            whole = WHOLE.get(gate)
            if path not in cuts and whole not in cuts:
                kept += gate
        return kept

    def _keep(self, name: str, drawn: Tensor) -> Tensor:
        return keep_gates(drawn, "rzn", self.kept[name])

    @property
    def input_blind(self) -> bool:
        return not self.kept["weight_ih"]

    def weight(self, name: str) -> Tensor:
        """Return a weight with the rows of all gates, 0 where cut; a cut gate's bias is large."""
        kept = self.kept[name]
        weight = getattr(self.w, name)
        cuts = self.config.cuts
        if weight is None:
            # It has the type and the device that the missing weight would have.
            like = next(iter(self.w.parameters()))
            shape = (3 * self.width,)
            if name in ("weight_ih", "weight_hh"):
                shape = (3 * self.width, self.width)
            full = like.new_zeros(shape)
        else:
            full = all_gates(weight, "rzn", kept)
        if name != "bias_ih" or not cuts & {Cut.RESET, Cut.UPDATE}:
            return full
        # r → 1 and z → 0: the kernel needs no branch for a gate that is cut.
        shifts = full.new_zeros(3, self.width)
        if Cut.RESET in cuts:
            shifts[0] = CONSTANT
        if Cut.UPDATE in cuts:
            shifts[1] = -CONSTANT
        return full + shifts.flatten()

    def project(self, x: Tensor) -> Tensor:
        weight = self.weight("weight_ih")
        bias = self.weight("bias_ih")
        projected = linear(x, weight, bias)
        if self.config.reset is not Reset.INPUT:
            return projected
        # r multiplies x before W_in does, so `step` needs x itself.
        gates = projected[..., : 2 * self.width]
        return torch.cat([gates, x], -1)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        (h,) = state
        gates = 2 * self.width
        weight = self.weight("weight_hh")
        bias = self.weight("bias_hh")
        hrz = linear(h, weight[:gates], bias[:gates])
        logits = projected[..., :gates] + hrz
        rz = logits.sigmoid()
        r, z = rz.chunk(2, -1)
        xn = projected[..., gates:]
        weight = weight[gates:]
        bias = bias[gates:]
        if self.config.reset is Reset.BEFORE:
            n = xn + linear(r * h, weight, bias)
        elif self.config.reset is Reset.AFTER:
            n = linear(h, weight, bias)
            n = xn + r * n
        else:
            weight_ih = self.weight("weight_ih")[gates:]
            bias_ih = self.weight("bias_ih")[gates:]
            n = linear(r * xn, weight_ih, bias_ih)
            n = n + linear(h, weight, bias)
        n = n.tanh()
        # (1 − z) n + z h, with one product less.
        h = n + z * (h - n)
        return h, (h,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        if self.config.reset is Reset.INPUT:
            return None
        before = self.config.reset is Reset.BEFORE
        gates = 2 * self.width
        recurrence = find_recurrence("gru", start, reset_before=before)
        if recurrence is None:
            return None
        bias = self.weight("bias_hh")
        # With reset=before all of b_hh is added to the projected inputs, else that of r and z.
        added = bias
        if not before:
            added = pad(bias[:gates], (0, self.width))
        projected = recurrence.project(lambda vectors: self.project(vectors) + added, x)
        hidden = self.weight("weight_hh").mT
        weights = [hidden, bias[None, gates:]]
        return scan(recurrence, projected, start, weights)[0]
