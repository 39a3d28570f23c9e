"""The minimal gated unit (MGU), and its cut of four terms with options, the MGRU."""

import dataclasses
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool, model_validator
from pydantic_core import ArgsKwargs
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.cells.base import CELLS, Cell, Inputs, OutputAndState, State, Weights, affine
from lmzoo.cells.cuts import cuts_of, numbered, parse_cuts
from lmzoo.functional.parameters import DrawnModule
from lmzoo.kernels.affine import joint_affine
from lmzoo.kernels.dispatch import has_gpu_kernels
from lmzoo.kernels.scan import find_recurrence, scan
from lmzoo.types import Hidden


class Minimal(Cell):
    """What the two cells share: their kernels."""

    pair: ClassVar[bool]
    """True if `project` gives the terms of gate and candidate; False if the activated candidate."""
    cuts: frozenset[Any]
    w: Weights

    def fast_states(self, x: Inputs, start: Tensor, **options: Any) -> Tensor | None:
        """Return h after every step; None without a kernel for this width, device and dtype."""
        options["carry"] = "carry" not in self.cuts
        options["write"] = "write" not in self.cuts
        recurrence = find_recurrence("mgu", start, pair=self.pair, **options)
        if recurrence is None:
            return None
        weights = [getattr(self.w, name, None) for name in ("hf", "hh")]
        projected = recurrence.project(self.project, x)
        return scan(recurrence, projected, start, weights)[0]


Cut = StrEnum(
    "Cut",
    "INPUT_TO_GATE STATE_TO_GATE GATE_BIAS INPUT_TO_CANDIDATE STATE_TO_CANDIDATE "
    "CANDIDATE_BIAS CARRY WRITE",
)
Cuts = frozenset[Cut]
# By their numbers, as all paths into the candidate are next to each other.
CANDIDATE = frozenset(list(Cut)[3:6])


def canonical(cuts: Cuts) -> Cuts:
    """Return the one set of cuts for a function; a `UserError` if h is zero at every step.

    A candidate that is always zero counts as the cut write (7). With write (7), the other cuts of
    the candidate have no effect and are dropped.
    """
    if cuts >= CANDIDATE:
        cuts = cuts | {Cut.WRITE}
    if Cut.WRITE in cuts:
        # A candidate of zeros writes nothing: one name for both.
        cuts = cuts - CANDIDATE
    if cuts >= {Cut.CARRY, Cut.WRITE}:
        raise UserError(f"cuts {numbered(cuts)} leave h = 0 at every step; remove one of them")
    return cuts


@CELLS("mgu")
class MGU(Minimal):
    """The minimal gated unit (MGU) and its eight cuts.

        f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )                gate
        c_t = tanh( x_t W_xh + (h_{t-1} ⊙ f_t) W_hh + b_h )     candidate
        h_t = (1 − f_t) ⊙ h_{t-1} + f_t ⊙ c_t                   blend

    S0 calls it a GRU; a GRU with one gate in both roles is the MGU. A cut replaces a term by zero:

        0  input_to_gate           x_t W_xf            4  state_to_candidate   (h_{t-1} ⊙ f_t) W_hh
        1  state_to_gate           h_{t-1} W_hf        5  candidate_bias       b_h
        2  gate_bias               b_f                 6  carry                (1 − f_t) ⊙ h_{t-1}
        3  input_to_candidate      x_t W_xh            7  write                f_t ⊙ c_t

    The variants of Heck & Salem 2017 (arXiv:1701.03452) are cuts: MGU1 is input_to_gate (0), MGU2
    also gate_bias (2), MGU3 is input_to_gate (0) and state_to_gate (1).

    Zhou et al. 2016 (arXiv:1603.09420). Source: S0 (DLM46).
    """

    pair = True
    outputs_state = True

    @config
    class Config:
        """The cuts, by name or number; `mutations=` is another name of `cuts=`.

        Cuts that leave the same function give equal configs.
        """

        cuts: Annotated[Cuts, cuts_of(Cut, canonical)] = frozenset()

        @model_validator(mode="before")
        @classmethod
        def _rename_mutations(cls, value: Any) -> Any:
            # Fields are given by keyword or as a dict.
            if isinstance(value, ArgsKwargs):
                value = value.kwargs
            fields = dict(value or {})
            if "mutations" in fields:
                fields["cuts"] = fields.pop("mutations")
            return fields

        def uncut(self) -> Any:
            """Return the config without the cuts that zero weights can express: all but carry (6).

            They also express write (7), because c = tanh(0) = 0.
            """
            return MGU.Config(cuts=self.cuts & {Cut.CARRY})

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        h = width
        shapes = {
            "xf": (h, h),
            "hf": (h, h),
            "bf": (h,),
            "xh": (h, h),
            "hh": (h, h),
            "bh": (h,),
        }
        # The first six cuts are those of the weights, in this order.
        paths = zip(shapes, Cut, strict=False)
        cut = {name for name, path in paths if path in self.cuts}
        if Cut.WRITE in self.cuts:
            cut |= {"xh", "hh", "bh"}
        self.w = Weights(shapes, cut, fan_in=h, biases={"bf", "bh"})

    @property
    def input_blind(self) -> bool:
        if Cut.INPUT_TO_GATE not in self.cuts:
            return False
        return bool(self.cuts & {Cut.INPUT_TO_CANDIDATE, Cut.WRITE})

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        pair = (w.xf, w.xh)
        biases = (w.bf, w.bh)
        # On a GPU each launch costs time: one product for both.
        if has_gpu_kernels(x) and all(part is not None for part in pair + biases):
            return joint_affine(x, pair, biases)
        gate = affine(x, w.xf, w.bf)
        candidate = affine(x, w.xh, w.bh)
        return torch.cat([gate, candidate], -1)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        (h,) = state
        w = self.w
        cuts = self.cuts
        xf, xh = projected.chunk(2, -1)
        if w.hf is not None:
            xf = xf + h @ w.hf
        f = xf.sigmoid()
        if Cut.WRITE in cuts:
            h = (1 - f) * h
        else:
            if w.hh is not None:
                xh = xh + (h * f) @ w.hh
            c = xh.tanh()
            if Cut.CARRY in cuts:
                h = f * c
            else:
                # (1 − f) h + f c, with one product less.
                h = h + f * (c - h)
        return h, (h,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        return self.fast_states(x, start)


MGRUCut = StrEnum("MGRUCut", "STATE_TO_GATE INPUT_TO_CANDIDATE CARRY WRITE")


Squash = StrEnum("Squash", "TANH SIGMOID")
"""The activation of the candidate; with sigmoid and h_0 in [0, 1] the state stays in [0, 1]."""
Gate = StrEnum("Gate", "RAW CENTRED LOGIT")
"""The function of the state that the gate reads: h, h − ½ or ½ logit(h) = atanh(clip(2h − 1))."""
Output = StrEnum("Output", "RAW CENTRED")
"""The function of the state that the emission reads: h or h − ½."""
Carry = StrEnum("Carry", "STATE PRIOR BILINEAR")
"""The carried vector j: the last state, or attention over earlier outputs by a per-channel softmax
of a learned prior plus a key, or of multi-head bilinear scores."""
Switch = StrEnum(
    "Switch",
    "STATE_TO_GATE INPUT_TO_CANDIDATE CARRY WRITE SIGMOID KEEP CENTRED GATE_RAW OUTPUT_RAW LOGIT "
    "PRIOR BILINEAR",
)


def from_numbers(mutations: object) -> FieldsDict:
    """Return the config fields for a set of switches; see the table of `MGRU`."""
    chosen = parse_cuts(Switch, mutations)
    squash = Squash.TANH
    if Switch.SIGMOID in chosen:
        squash = Squash.SIGMOID
    output = Output.RAW
    gate = Gate.RAW
    if Switch.CENTRED in chosen:
        if Switch.OUTPUT_RAW not in chosen:
            output = Output.CENTRED
        if Switch.GATE_RAW not in chosen:
            gate = Gate.CENTRED
            if Switch.LOGIT in chosen:
                gate = Gate.LOGIT
    carry = Carry.STATE
    if Switch.BILINEAR in chosen:
        carry = Carry.BILINEAR
    if Switch.PRIOR in chosen:  # both: the prior counts
        carry = Carry.PRIOR
    return {
        "cuts": frozenset(cut for cut in MGRUCut if cut in chosen),
        "squash": squash,
        "keep": Switch.KEEP in chosen,
        "gate": gate,
        "output": output,
        "carry": carry,
    }


def canonical_fields(fields: Fields) -> FieldsDict:
    """Return the one setting for a function; a `UserError` if the state is zero at every step.

    Fields may be partial, or `mutations` with switch numbers.
    """
    fields = dict(fields)
    if "mutations" in fields:
        # Numbers set every switch: other fields are defaults merged from a full config.
        fields |= from_numbers(fields.pop("mutations"))
    cuts = parse_cuts(MGRUCut, fields.get("cuts", ()))
    keep = fields.get("keep", False)
    squash = str(fields.get("squash", Squash.TANH))
    if MGRUCut.CARRY in cuts and not keep:
        writes_nothing = MGRUCut.WRITE in cuts
        if MGRUCut.INPUT_TO_CANDIDATE in cuts and squash == Squash.TANH:
            writes_nothing = True  # tanh(0) = 0
        if writes_nothing:
            raise UserError(
                f"cuts {numbered(cuts)} leave h = 0 at every step; "
                "remove one of them, or set keep=True"
            )
        if "carry" in fields:
            fields["carry"] = Carry.STATE  # j is unused
    if MGRUCut.STATE_TO_GATE in cuts:
        fields["gate"] = Gate.RAW  # the gate reads nothing
        if MGRUCut.CARRY in cuts and keep:  # f = 1 − f = ½: `keep` adds the term that is cut
            cuts = cuts - {MGRUCut.CARRY}
            fields["keep"] = False
    carry = str(fields.get("carry", Carry.STATE))
    # Drop options that have no effect. An invalid value stays, and its validation fails.
    heads = fields.get("heads")
    if carry != Carry.BILINEAR and isinstance(heads, int) and heads > 0:
        del fields["heads"]
    if carry != Carry.PRIOR and isinstance(fields.get("prior"), bool):
        del fields["prior"]
    return fields | {"cuts": cuts}


class PriorCarry(DrawnModule):
    """Attention without queries, with a learned prior over (step, source, channel).

        j = Σ_{s<t} α_s ⊙ o_s,   α = softmax_s( Λ[t, s] + o_s W_j )            per channel

    The published code drops Λ by an operator-precedence error; `prior=False` reproduces it. W_j
    starts at U(H), Λ at ±1/T.
    """

    def __init__(self, width: int, length: int, *, prior: bool):
        super().__init__()
        self.set_drawn(width, key=(width, width))
        shape = None
        if prior:
            shape = (length, length, width)
        self.set_drawn(length**2, prior=shape)

    @property
    def unused(self) -> int:
        """Entries of Λ that no score depends on: s ≥ t, t < 2, and the last step, never read."""
        if self.prior is None:
            return 0
        length, _, width = self.prior.shape
        # Entries s < t; the softmax of the single one at t = 1 is constant.
        pairs = (length - 1) * (length - 2) // 2
        used = max(0, pairs - 1)
        return (length**2 - used) * width

    def forward(self, outputs: Float[Tensor, "B s H"], h: Hidden) -> Hidden:
        scores = outputs @ self.key
        if self.prior is not None:
            t = outputs.shape[1]
            length = len(self.prior)
            # The prior has a row for each step of the task.
            if t >= length:
                raise UserError(
                    f"the prior carry of the MGRU is built for {length} tokens, got more; "
                    "use shorter sequences or a longer task.length"
                )
            scores = scores + self.prior[t, :t]
        weights = scores.softmax(1)
        return (weights * outputs).sum(1)


class BilinearCarry(DrawnModule):
    """Attention with the state as query; a linear layer A maps heads to channels.

    j = Σ_{s<t} α_s ⊙ o_s,   α = softmax_s( A (o_s · C_w h_{t-1})_w )          per channel
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.set_drawn(width, form=(heads, width, width))
        self.mix = nn.Linear(heads, width, bias=False)  # a bias would cancel in the softmax

    def forward(self, outputs: Float[Tensor, "B s H"], h: Hidden) -> Hidden:
        query = torch.einsum("whk,bk->bwh", self.form, h)
        products = torch.einsum("bsh,bwh->bsw", outputs, query)
        weights = self.mix(products).softmax(1)
        return (weights * outputs).sum(1)


@CELLS("mgru")
class MGRU(Minimal):
    """The minimal gated recurrent unit (MGRU) and its twelve switches.

        q_t = h_{t-1}                                                   gate=raw
            | h_{t-1} − ½                                               gate=centred
            | atanh(clip(2 h_{t-1} − 1))                                gate=logit
        f_t = σ( q_t W_hf )
        g_t = tanh( x_t W_xh )                                          squash=tanh
            | σ( x_t W_xh )                                             squash=sigmoid
        j_t = h_{t-1}                                                   carry=state
            | attention over o_0 .. o_{t-1} with a learned prior        carry=prior
            | bilinear attention over o_0 .. o_{t-1}                    carry=bilinear
        h_t = (1 − f_t) ⊙ j_t + f_t ⊙ g_t                               keep=False
            | (1 − f_t) ⊙ j_t + f_t ⊙ g_t + f_t ⊙ j_t                   keep=True
        o_t = h_t                                                       output=raw
            | h_t − ½                                                   output=centred

    The first form of each is the wild type. The switches 0 to 3 cut a term, the others set an
    option:

        0  state_to_gate         q_t W_hf                   6  gate=output=centred
        1  input_to_candidate    x_t W_xh                   7  gate=raw
        2  carry                 (1 − f_t) ⊙ j_t            8  output=raw
        3  write                 f_t ⊙ g_t                  9  gate=logit
        4  squash=sigmoid                                  10  carry=prior
        5  keep                                            11  carry=bilinear

    With 6, the switch 7 lets the gate read h_{t-1} again, 8 the emission h_t, and 9 without 7 lets
    the gate read the logit; without 6 they have no effect. Switch 10 wins over 11. 1,024 of the
    4,096 patterns of numbers depend on the input; they are 148 distinct functions, and
    `canonical_fields` maps all settings of a function to one.

    The wild type equals the MGU with the cuts input_to_gate (0), gate_bias (2), state_to_candidate
    (4) and candidate_bias (5). With `squash=sigmoid` and h_0 in [0, 1], every h_t is a vector of
    Bernoulli parameters.

    Source: S0 (DLM47).
    """

    pair = False

    @config
    class Config:
        """Four cuts and five options; `mutations=` sets all by number."""

        cuts: frozenset[MGRUCut] = frozenset()
        squash: Squash = Squash.TANH
        keep: StrictBool = False
        """Add f ⊙ j, so that nothing is forgotten."""
        gate: Gate = Gate.RAW
        output: Output = Output.RAW
        carry: Carry = Carry.STATE
        heads: int = Field(4, ge=1)
        """Heads of the bilinear carry."""
        prior: bool = True
        """Give carry=prior its prior Λ; the published code has none."""

        @model_validator(mode="before")
        @classmethod
        def _canonical(cls, value: Any) -> Any:
            fields = value
            if isinstance(value, ArgsKwargs):
                fields = value.kwargs
            return canonical_fields(fields or {})

        def uncut(self) -> Any:
            """Return the config without those cuts that zero weights can express.

            Zero weights give f = σ(0) = ½ and g = act(0).
            """
            weights = {MGRUCut.STATE_TO_GATE, MGRUCut.INPUT_TO_CANDIDATE}
            if self.squash is Squash.TANH:
                weights.add(MGRUCut.WRITE)  # g = tanh(0) = 0
            return dataclasses.replace(self, cuts=self.cuts - weights)

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        names = {"hf": MGRUCut.STATE_TO_GATE, "xh": MGRUCut.INPUT_TO_CANDIDATE}
        cut = {name for name, path in names.items() if path in self.cuts}
        if MGRUCut.WRITE in self.cuts:
            cut.add("xh")
        matrix = (width, width)
        shapes = {"hf": matrix, "xh": matrix}
        self.w = Weights(shapes, cut, fan_in=width)
        self.attend: nn.Module | None = None
        if config.carry is Carry.PRIOR:
            self.attend = PriorCarry(width, length, prior=config.prior)
        elif config.carry is Carry.BILINEAR:
            self.attend = BilinearCarry(width, config.heads)

    @property
    def input_blind(self) -> bool:
        return bool(self.cuts & {MGRUCut.INPUT_TO_CANDIDATE, MGRUCut.WRITE})

    @property
    def state_size(self) -> int | None:
        if self.attend is None:
            return self.width
        return None

    def initial_state(self, start: Tensor) -> State:
        if self.attend is None:
            return (start,)
        outputs = start.new_zeros(len(start), 0, self.width)
        return (start, outputs)

    def constrain_start(self, vectors: Tensor) -> Tensor:
        """Map vectors to [0, 1] if the state holds Bernoulli parameters."""
        if self.config.squash is Squash.SIGMOID:
            return vectors.sigmoid()
        return vectors

    def project(self, x: Tensor) -> Tensor:
        act = torch.sigmoid
        if self.config.squash is Squash.TANH:
            act = torch.tanh
        if self.w.xh is None:
            return act(torch.zeros_like(x))
        return act(x @ self.w.xh)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        j = state[0]
        h = state[0]
        g = projected
        hf = self.w.hf
        if hf is None:
            # σ(0): nothing enters the gate.
            f = torch.full_like(h, 0.5)
        else:
            logits = self._gate_input(h) @ hf
            f = logits.sigmoid()
        # Before the first output there is nothing to attend to: j is the initial state.
        if self.attend is not None and state[1].shape[1]:
            j = self.attend(state[1], h)
        if MGRUCut.CARRY in self.cuts:
            h = torch.zeros_like(h)
        else:
            h = (1 - f) * j
        if MGRUCut.WRITE not in self.cuts:
            h = h + f * g
        if self.config.keep:
            h = h + f * j
        o = h
        if self.config.output is Output.CENTRED:
            o = h - 0.5
        if self.attend is None:
            return o, (h,)
        outputs = torch.cat([state[1], o[:, None]], 1)
        return o, (h, outputs)

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState | None:
        if self.attend is not None:
            return None
        c = self.config
        states = self.fast_states(x, state[0], keep=c.keep, read=c.gate.value)
        if states is None:
            return None
        outputs = states
        if c.output is Output.CENTRED:
            outputs = states - 0.5
        return outputs, (states[:, -1],)

    def _gate_input(self, h: Tensor) -> Tensor:
        if self.config.gate is Gate.CENTRED:
            return h - 0.5
        if self.config.gate is Gate.LOGIT:
            centred = 2 * h - 1
            # The clip keeps the logit finite: h is 0 or 1 after rounding.
            return centred.clamp(-0.9999, 0.9999).atanh()
        return h
