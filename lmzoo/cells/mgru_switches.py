"""The twelve switches of the MGRU: four cuts and the options of five fields.

    number  switch                 effect
    0       state_to_gate          cut: f ≡ ½
    1       input_to_candidate     cut: g ≡ act(0)
    2       carry                  cut: h = f ⊙ g
    3       write                  cut: h = (1 − f) ⊙ j
    4       squash=sigmoid         g = σ(x W_xh)
    5       keep=True              adds f ⊙ j
    6       gate=output=centred    gate and emission read h − ½
    7       gate=raw               with 6: the gate reads h
    8       output=raw             with 6: the emission reads h
    9       gate=logit             with 6 and without 7: the gate reads ½ logit(h)
    10      carry=prior            carries attention with a learned prior; wins over 11
    11      carry=bilinear         carries bilinear attention

Several settings compute the same function. 1,024 of the 4,096 patterns of numbers depend on the
input; they are 148 distinct functions. `canonical` maps all settings of a function to one.

Source: S0 (DLM47).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from lmzoo.cells.cuts import numbered, parse_cuts
from lmzoo.errors import UserError


class Cut(StrEnum):
    """A term of the recurrence that can be removed; its number is its position."""

    STATE_TO_GATE = "state_to_gate"  # f ≡ ½: averaging at a fixed rate
    INPUT_TO_CANDIDATE = "input_to_candidate"  # g ≡ act(0): blind to the input
    CARRY = "carry"  # h = f ⊙ g
    WRITE = "write"  # h = (1 − f) ⊙ j: blind to the input


class Squash(StrEnum):
    """The activation of the candidate."""

    TANH = "tanh"
    SIGMOID = "sigmoid"  # with h_0 in [0, 1] the state stays in [0, 1]


class Gate(StrEnum):
    """The function of the state that the gate reads."""

    RAW = "raw"
    CENTRED = "centred"  # h − ½
    LOGIT = "logit"  # atanh(clip(2h − 1)) = ½ logit(h)


class Output(StrEnum):
    """The function of the state that the emission reads."""

    RAW = "raw"
    CENTRED = "centred"  # h − ½


class Carry(StrEnum):
    """The carried vector j: the last state, or attention over earlier outputs."""

    STATE = "state"
    PRIOR = "prior"  # per-channel softmax of a learned prior plus a key
    BILINEAR = "bilinear"  # per-channel softmax of multi-head bilinear scores


NUMBERS = 12
"""Count of switches."""


def from_numbers(mutations: object) -> dict[str, Any]:
    """Return the config fields for a set of switch numbers; see the table above.

    Raises:
        UserError: A number is not in 0..11.
    """
    if isinstance(mutations, str):
        mutations = [p for p in mutations.replace(";", ",").split(",") if p.strip()]
    items = list(mutations) if isinstance(mutations, Iterable) else [mutations]
    texts = [str(item).strip() for item in items]
    if not all(text.isdecimal() and int(text) < NUMBERS for text in texts):
        raise UserError(
            f"mutations of the mgru cell are numbers 0..{NUMBERS - 1}, got {mutations!r}"
        )
    on = {int(text) for text in texts}
    gate = Gate.RAW
    if 6 in on and 7 not in on:
        gate = Gate.LOGIT if 9 in on else Gate.CENTRED
    return {
        "cuts": frozenset(cut for i, cut in enumerate(Cut) if i in on),
        "squash": Squash.SIGMOID if 4 in on else Squash.TANH,
        "keep": 5 in on,
        "gate": gate,
        "output": Output.CENTRED if 6 in on and 8 not in on else Output.RAW,
        "carry": Carry.PRIOR if 10 in on else Carry.BILINEAR if 11 in on else Carry.STATE,
    }


def canonical(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one setting that stands for all settings of the same function.

    Args:
        fields: Config fields, possibly partial, or `mutations` with switch numbers.

    Raises:
        UserError: The state would be zero at every step.
    """
    fields = dict(fields)
    if "mutations" in fields:
        # Numbers set every switch: other fields are defaults merged from a full config.
        fields |= from_numbers(fields.pop("mutations"))
    cuts = parse_cuts(Cut, fields.get("cuts", ()))
    keep, squash = fields.get("keep", False), str(fields.get("squash", Squash.TANH))
    if Cut.CARRY in cuts and not keep:
        zero_candidate = Cut.INPUT_TO_CANDIDATE in cuts and squash == Squash.TANH
        if Cut.WRITE in cuts or zero_candidate:
            raise UserError(
                f"cuts {numbered(cuts)} leave h = 0 at every step; "
                "remove one of them, or set keep=True"
            )
        if "carry" in fields:
            fields["carry"] = Carry.STATE  # j is unused
    if Cut.STATE_TO_GATE in cuts:
        fields["gate"] = Gate.RAW  # the gate reads nothing
        if Cut.CARRY in cuts and keep:  # f = 1 − f = ½: `keep` adds the term that is cut
            cuts, fields["keep"] = cuts - {Cut.CARRY}, False
    carry = str(fields.get("carry", Carry.STATE))
    # Drop options that have no effect. An invalid value stays, and its validation fails.
    if carry != Carry.BILINEAR and isinstance(heads := fields.get("heads"), int) and heads > 0:
        del fields["heads"]
    if carry != Carry.PRIOR and isinstance(fields.get("prior"), bool):
        del fields["prior"]
    return {**fields, "cuts": cuts}
