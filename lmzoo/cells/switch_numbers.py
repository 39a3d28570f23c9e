"""The seed's numbers for switches, accepted as aliases of their names."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from lmzoo.errors import UserError

E = TypeVar("E", bound=StrEnum)


def by_number(kind: type[E], given: object) -> frozenset[E]:
    """Members of `kind` from names, members, positions, or a text of either: `"0,2"`.

    Raises:
        UserError: no such name or position; the message lists what there is.
    """
    if isinstance(given, str):
        given = [part for part in given.replace(";", ",").split(",") if part.strip()]
    elif isinstance(given, int):
        given = [given]
    if not isinstance(given, Iterable):
        raise UserError(f"{kind.__name__.lower()}s are names or numbers, got {given!r}")
    return frozenset(_member(kind, one) for one in given)


def _member(kind: type[E], one: object) -> E:
    members, text = list(kind), str(one).strip().lower()
    if text.isdecimal() and int(text) < len(members):
        return members[int(text)]
    for member in members:
        if text in (member.value, member.name.lower()):
            return member
    known = ", ".join(f"{i} {m.value}" for i, m in enumerate(members))
    raise UserError(f"no {kind.__name__.lower()} {one!r}; there are {known}")
