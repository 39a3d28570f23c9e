"""Search ranges of config fields, declared with the field's default.

    lr: Annotated[PositiveFloat, FloatRange(1e-4, 1e-1, log=True)] = 3e-3

Sweeps read these ranges. On the command line a range is `1e-4:1e-1:log` or `8:64`, and a choice is
`8,16,32`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from lmzoo.base.arguments import constructed, scalar
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict


@constructed
@dataclass(frozen=True)
class IntRange:
    """Integers from `low` to `high`, both included."""

    low: int
    """Lowest value."""
    high: int
    """Highest value."""
    log: bool = False
    """Whether the logarithm is searched evenly."""

    def __post_init__(self):
        _read_bounds(self, int, "a whole number")


@constructed
@dataclass(frozen=True)
class FloatRange:
    """Real numbers from `low` to `high`."""

    low: float
    """Lowest value."""
    high: float
    """Highest value."""
    log: bool = False
    """Whether the logarithm is searched evenly."""

    def __post_init__(self):
        _read_bounds(self, int | float, "a number")


@constructed
@dataclass(frozen=True)
class Choice:
    """One of `values`, without an order."""

    values: tuple[Any, ...]
    """The values, in any order."""

    def __post_init__(self):
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise UserError(
                f"Choice: {self.values!r} is no list of values; write Choice(('a', 'b'))"
            )
        # A list can be given; a frozen config needs a tuple.
        object.__setattr__(self, "values", tuple(self.values))


Range = IntRange | FloatRange | Choice


def _read_bounds(bounds: IntRange | FloatRange, wanted: Any, said: str):
    kind = type(bounds).__name__
    for name in ("low", "high"):
        given = getattr(bounds, name)
        value = scalar(given)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UserError(f"{kind}: {name} is {given!r:.60}; give {said}")
        # A scalar of numpy or torch becomes a Python one, which JSON knows.
        object.__setattr__(bounds, name, value)
    check_range(kind, bounds)


def check_range(what: str, bounds: Range | None):
    """Raise a `UserError`, which begins with `what`, if bounds are empty or not in order."""
    if bounds is None:
        return
    if isinstance(bounds, Choice):
        if not bounds.values:
            raise UserError(f"{what}: a choice needs a value, got none")
        return
    if not bounds.low < bounds.high:
        raise UserError(f"{what}: the first number must be the lower one, got {bounds}")
    if bounds.log and bounds.low <= 0:
        raise UserError(f"{what}: a log range must start above 0, got {bounds}")


DECADE = 10.0
"""A pair whose bounds are this far apart is a logarithmic range."""


def short_range(value: Any) -> Any:
    """Return the range that a pair is, or the choice that a list is; other values as they are.

    `(1e-3, 1e-1)` is logarithmic because it spans a decade; a pair of integers is an `IntRange`.
    """
    if isinstance(value, list) and value:
        return Choice(tuple(value))
    if not isinstance(value, tuple) or len(value) != 2:
        return value
    kinds = {type(bound) for bound in value}
    if not kinds <= {int, float}:  # True is no number
        return value
    low, high = value
    if not low < high:
        return value
    # Learning rates are tried by their orders of magnitude.
    log = False
    if low > 0:
        log = high >= DECADE * low
    if kinds == {int}:
        return IntRange(low, high, log)
    return FloatRange(low, high, log)


def middle(bounds: Range) -> Any:
    """Return the middle of a range, of its logarithm if it is logarithmic, or the first choice."""
    if isinstance(bounds, Choice):
        return bounds.values[0]
    value = (bounds.low + bounds.high) / 2
    if bounds.log:
        value = math.sqrt(bounds.low * bounds.high)
    if isinstance(bounds, IntRange):
        return round(value)
    return float(f"{value:.4g}")


def ranges(cls: type) -> dict[str, Range]:
    """Return the search ranges of a config class, by field name."""
    found = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        for mark in get_args(hint):
            if isinstance(mark, Range):
                found.setdefault(name, mark)
    return found


def parse_range(text: str) -> Range:
    """Parse `low:high[:log]` or `a,b,c`; a range of two integers is an `IntRange`.

    A `UserError` says that the text has neither form, or that low is not below high.
    """
    if "," in text:
        return Choice(tuple(_value(part) for part in text.removesuffix(",").split(",")))
    start, _, rest = text.partition(":")
    end, _, scale = rest.partition(":")
    try:
        bounds = (_number(start), _number(end))
    except ValueError:
        bounds = None
    if bounds is None or scale not in ("", "log"):
        raise UserError(f"search range {text!r} is not low:high, low:high:log or a,b,c")
    low, high = bounds
    try:
        # 1:10 are integers, 1.0:10 are not.
        if isinstance(low, int) and isinstance(high, int):
            return IntRange(low, high, bool(scale))
        return FloatRange(float(low), float(high), bool(scale))
    except UserError as error:
        reason = str(error).partition(": ")[2]
        raise UserError(f"search range {text!r}: {reason}") from None


def range_json(bounds: Range) -> FieldsDict:
    """Return a range as plain data."""
    if isinstance(bounds, Choice):
        return {"values": list(bounds.values)}
    return {"low": bounds.low, "high": bounds.high, "log": bounds.log}


def range_text(path: str, bounds: Fields) -> str:
    """Return the option with which `changed_search` gives a field this range, as plain data."""
    if "values" in bounds:
        values = ",".join(map(str, bounds["values"]))
        if len(bounds["values"]) == 1:
            values += ","  # or it is no choice
        return f"{path}={values}"
    text = f"{path}={bounds['low']!r}:{bounds['high']!r}"
    if bounds.get("log"):
        text += ":log"
    return text


def changed_search(search: Mapping[str, Range | None], options: Iterable[str]) -> FieldsDict:
    """Return the searched fields, changed by options such as `recipe.lr=1e-4:1e-1:log`.

    A `UserError` says that an option is not a field and a range, a choice or `off`.
    """
    changed = dict(search)
    for text in options:
        path, equals, bounds = text.partition("=")
        if not equals:
            raise UserError(f"--search-space {text!r} is not FIELD=LOW:HIGH[:log] or FIELD=a,b,c")
        if bounds == "off":
            # Also a field that is not searched: then nothing changes.
            changed.pop(path, None)
        else:
            changed[path] = parse_range(bounds)
    return changed


def near_bound(value: Any, bounds: Range) -> bool:
    """Return True if `value` is within 2 % of the range's width of a bound.

    A logarithmic range is measured in logarithms. A choice has no bounds.
    """
    if isinstance(bounds, Choice):
        return False
    scale = float
    if bounds.log:
        scale = math.log
    low = scale(bounds.low)
    high = scale(bounds.high)
    place = scale(value)
    return min(place - low, high - place) <= 0.02 * (high - low)


WORDS = {"true": True, "false": False, "none": None}
"""Words of a choice that are no text."""


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _value(text: str) -> Any:
    try:
        return _number(text)
    except ValueError:
        return WORDS.get(text.lower(), text)
