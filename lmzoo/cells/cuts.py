"""Names and numbers of a cell's cuts.

A cut has a name and a number, its position in the enum: `state_to_candidate (4)`. Configs accept
both.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BeforeValidator

from lmzoo.base.errors import UserError

E = TypeVar("E", bound=StrEnum)


def parse_cuts(kind: type[E], value: object) -> frozenset[E]:
    """Return members of `kind` from names, members or numbers, or from a text such as "0,2".

    Raises:
        UserError: A name or number is unknown; the message lists the valid ones.
    """
    if isinstance(value, str):
        value = [part for part in value.replace(";", ",").split(",") if part.strip()]
    elif isinstance(value, int):
        value = [value]
    if not isinstance(value, Iterable):
        raise UserError(f"{_noun(kind)}s are names or numbers, got {value!r}")
    return frozenset(_parse_member(kind, item) for item in value)


def cuts_of(kind: type[E], canonical: Callable[[frozenset[E]], frozenset[E]] | None = None) -> Any:
    """Return the validator of a field with cuts, for `Annotated[frozenset[Cut], ...]`.

    Args:
        kind: The enum of the cuts.
        canonical: Returns the one set that stands for all sets with the same function.
    """

    def parse(value: object) -> frozenset[E]:
        cuts = parse_cuts(kind, value)
        return cuts if canonical is None else canonical(cuts)

    return BeforeValidator(parse)


def numbered(cuts: Iterable[StrEnum]) -> str:
    """Return the cuts by name with their numbers: "carry (6), write (7)"."""
    cuts = set(cuts)
    members = list(type(next(iter(cuts)))) if cuts else []
    return ", ".join(f"{cut} ({i})" for i, cut in enumerate(members) if cut in cuts)


def _noun(kind: type[StrEnum]) -> str:
    return "cut" if kind.__name__.endswith("Cut") else kind.__name__.lower()


def _parse_member(kind: type[E], item: object) -> E:
    members, text = list(kind), str(item).strip().lower()
    if text.isdecimal() and int(text) < len(members):
        return members[int(text)]
    for member in members:
        if text in (member.value, member.name.lower()):
            return member
    raise UserError(f"no {_noun(kind)} {item!r}; known: {numbered(kind)}")
