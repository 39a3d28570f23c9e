"""What parsed files must have: one that lacks a field, or has another type there, is damaged.

Other fields are allowed: later versions add some.
"""

import csv
import functools
from importlib.resources import files
from typing import Annotated, Any

import pydantic
from pydantic import Field, FiniteFloat, create_model

from lmzoo.base.plain import Fields, FieldsDict

STATUSES = ("finished", "pruned", "diverged", "failed")
NEEDED = {"epoch": "valid_token", "test": "token", "end": "status", "note": "reason"}
"""Event -> a field that it has."""
# Tables of polars hold 64 bits.
Count = Annotated[int, Field(gt=-(2**63), lt=2**63)]


class Whole(pydantic.BaseModel):
    """An object of JSON: no text is taken for a number, and no truth value."""

    # Built when it is used, for `import lmzoo`.
    model_config = pydantic.ConfigDict(strict=True, defer_build=True)


class Event(Whole):
    """A line of the records."""

    event: str
    epoch: Count


def read_fields(of: str) -> dict[str, str]:
    """Return name -> type of the fields of a `run` or an `event` (`fields.csv`).

    A text, a number, a whole number, or JSON, which is any value; null is one of each.
    """
    found = {}
    with files("lmzoo.lab.store").joinpath("fields.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["of"] == of:
                found[row["name"]] = row["type"]
    return found


TYPES: FieldsDict = {"text": str, "number": float, "whole": Count}


@functools.cache
def _event() -> type[Event]:
    """Return the event with its optional fields; made late, for `import lmzoo`."""
    optional: FieldsDict = {}
    for name, kind in read_fields("event").items():
        if kind in TYPES:
            optional[name] = (TYPES[kind] | None, None)
    return create_model("EVENT", __base__=Event, **optional)


class Identified(Whole):
    """A point, by its name in files."""

    id: str


class Floor(Whole):
    """The entropy of the corpus, in nats per token."""

    token: float | None = None
    sentence: float | None = None


class Config(Whole):
    """The config of a run."""

    run: str
    stage: str
    score: str
    fingerprint: str
    leaks: str
    point: Identified
    model: FieldsDict
    setting: FieldsDict
    seed: Count
    corpus: Any
    floor: Floor | None
    ceiling: float | None = None
    vocab: int | None
    length: int | None
    parameters: int | None
    state_size: int | None = None
    flops: int | None = None


class Point(Identified):
    """A point of a study."""

    label: str


class Chosen(Whole):
    """The best setting of a point."""

    runs: list[Any]
    tuning_sd: FiniteFloat | None = None


class Study(Whole):
    """The file of a study."""

    name: str
    question: str
    budget: dict[str, FiniteFloat]
    search: FieldsDict
    points: list[Point]
    asked: FieldsDict = {}
    chosen: dict[str, Chosen] = {}
    margin: FiniteFloat = 0.0
    looks: list[FiniteFloat | list[FiniteFloat]] | None = None
    reference: str | None = None


class Setting(Whole):
    """A suggested setting of a point."""

    point: str
    index: int
    setting: FieldsDict


def fits(kind: type[Whole], value: Any) -> bool:
    """Return whether a parsed value has the fields of a kind."""
    try:
        kind.model_validate(value)
    except pydantic.ValidationError:
        return False
    return True


def is_record(value: Any) -> bool:
    """Return whether a parsed line is an event."""
    if not fits(_event(), value):
        return False
    event = value["event"]
    if NEEDED.get(event, "event") not in value:
        return False
    if event == "end":
        return value["status"] in STATUSES
    return True


def is_config(value: Any, run: str = "") -> bool:
    """Return whether a parsed file is the config of this run, or of any."""
    if not fits(Config, value):
        return False
    return run in ("", value["run"])


def is_study(value: Fields) -> bool:
    """Return whether a parsed file is that of a study."""
    if not fits(Study, value) or "epochs" not in value["budget"]:
        return False
    return len(value["points"]) >= len(value.get("chosen", ()))


def is_setting(value: Any) -> bool:
    """Return whether a parsed line is a suggested setting of a point."""
    return fits(Setting, value)
