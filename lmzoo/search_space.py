"""Where a field may be searched: plain data that stands beside the field's default.

    lr: Annotated[PositiveFloat, FloatRange(1e-4, 1e-1, log=True)] = 3e-3

The library only says the range; a sweep's search reads it. The text form, for command
lines, is `1e-4:1e-1:log` or `8:64` for a range and `8,16,32` for a choice.
"""

from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from lmzoo.errors import UserError


@dataclass(frozen=True)
class IntRange:
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False


@dataclass(frozen=True)
class FloatRange:
    """Real numbers from `low` to `high`."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of `values`; the order has no meaning."""

    values: tuple[Any, ...]


Range = IntRange | FloatRange | Choice


def ranges(cls: type) -> dict[str, Range]:
    """The searchable fields of a config class, by field name."""
    hints = get_type_hints(cls, include_extras=True)
    marks = {
        name: [m for m in get_args(hint) if isinstance(m, Range)] for name, hint in hints.items()
    }
    return {name: found[0] for name, found in marks.items() if found}


def parse_range(text: str) -> Range:
    """Read `low:high[:log]` or `a,b,c`.

    Raises:
        UserError: the text is neither, or low is not below high.
    """
    if "," in text:
        return Choice(tuple(_value(part) for part in text.split(",")))
    low, _, rest = text.partition(":")
    high, _, scale = rest.partition(":")
    try:
        bounds = (_number(low), _number(high))
    except ValueError:
        bounds = None
    if bounds is None or scale not in ("", "log") or not bounds[0] < bounds[1]:
        raise UserError(f"search range {text!r} is not low:high, low:high:log or a,b,c")
    if scale and bounds[0] <= 0:
        raise UserError(f"search range {text!r}: a log range must start above 0")
    if isinstance(bounds[0], int) and isinstance(bounds[1], int):
        return IntRange(bounds[0], bounds[1], log=bool(scale))
    return FloatRange(float(bounds[0]), float(bounds[1]), log=bool(scale))


def on_edge(value: Any, where: Range, margin: float = 0.02) -> bool:
    """Whether `value` lies within `margin` of an end of the range (never for a choice)."""
    from math import log

    if isinstance(where, Choice):
        return False
    scale = log if where.log else float
    low, high, x = scale(where.low), scale(where.high), scale(value)
    return min(x - low, high - x) <= margin * (high - low)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _value(text: str) -> Any:
    try:
        return _number(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
