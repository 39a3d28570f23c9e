"""The switches of the MGRU: four cuts and five choices, and when two settings are one.

The seed numbers them 0..11; a number is either a cut (zero in a term's place) or one
half of a choice. 1,024 of the 4,096 patterns see their input; they are 148 distinct
functions, and `canonical` gives each function one name.

S0 DLM47; zoo.md 2.3.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from lmzoo.cells.switch_numbers import by_number
from lmzoo.errors import UserError


class Cut(StrEnum):
    """A term of the recurrence that can be removed; the seed's number is its position."""

    STATE_TO_GATE = "state_to_gate"  # f ≡ ½: averaging at a fixed rate
    INPUT_TO_CANDIDATE = "input_to_candidate"  # g ≡ act(0): blind to the input
    CARRY = "carry"  # h = f ⊙ g
    WRITE = "write"  # h = (1 − f) ⊙ j: blind to the input


class Squash(StrEnum):
    """The candidate's activation (4)."""

    TANH = "tanh"
    SIGMOID = "sigmoid"  # with h_0 in [0, 1] the state stays in [0, 1]


class Gate(StrEnum):
    """What the gate reads of the state (6, 7, 9)."""

    RAW = "raw"
    CENTRED = "centred"  # h − ½
    LOGIT = "logit"  # atanh(clip(2h − 1)) = ½ logit(h)


class Output(StrEnum):
    """What the emission reads of the state (6, 8)."""

    RAW = "raw"
    CENTRED = "centred"  # h − ½


class Carry(StrEnum):
    """What is carried over: the last state, or attention over earlier outputs (10, 11)."""

    STATE = "state"
    PRIOR = "prior"  # per-channel softmax of a learned prior plus a key
    BILINEAR = "bilinear"  # per-channel softmax of multi-head bilinear scores


NUMBERS = 12


def from_numbers(mutations: object) -> dict[str, Any]:
    """The switches that a set of the seed's positions stands for.

    `7`, `8` and `9` act only with 6; 7 undoes 6 in the gate, 8 in the output.

    Raises:
        UserError: a position is not one of 0..11.
    """
    if isinstance(mutations, str):
        mutations = [p for p in mutations.replace(";", ",").split(",") if p.strip()]
    given = list(mutations) if isinstance(mutations, Iterable) else [mutations]
    texts = [str(one).strip() for one in given]
    if not all(text.isdecimal() and int(text) < NUMBERS for text in texts):
        raise UserError(f"mutations of the MGRU are numbers 0..{NUMBERS - 1}, got {mutations!r}")
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
    """The same function's one name, from fields that may be partial or numbers.

    Raises:
        UserError: the state would be zero for ever.
    """
    given = dict(fields)
    if "mutations" in given:
        # The numbers speak for every switch: defaults laid below them must not undo them.
        given |= from_numbers(given.pop("mutations"))
    cuts = by_number(Cut, given.get("cuts", ()))
    keep, squash = given.get("keep", False), str(given.get("squash", Squash.TANH))
    if Cut.CARRY in cuts and not keep:
        silent = Cut.INPUT_TO_CANDIDATE in cuts and squash == Squash.TANH
        if Cut.WRITE in cuts or silent:
            raise UserError(
                f"cuts {sorted(map(str, cuts))} leave h = 0 at every step; "
                "keep write and its input, or set keep"
            )
        if "carry" in given:
            given["carry"] = Carry.STATE  # nothing is carried
    if Cut.STATE_TO_GATE in cuts:
        given["gate"] = Gate.RAW  # nothing is read
        if Cut.CARRY in cuts and keep:  # f = 1 − f = ½: what is cut is added back
            cuts, given["keep"] = cuts - {Cut.CARRY}, False
    carry = str(given.get("carry", Carry.STATE))
    # Options nobody reads fall away; a wrong value stays, to be refused.
    if carry != Carry.BILINEAR and isinstance(heads := given.get("heads"), int) and heads > 0:
        del given["heads"]
    if carry != Carry.PRIOR and isinstance(given.get("prior"), bool):
        del given["prior"]
    return {**given, "cuts": cuts}
