"""Names and numbers of a cell's cuts.

A cut has a name and a number, its position in the enum: `state_to_candidate (4)`. Configs accept
both.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import BeforeValidator
from pydantic_core import core_schema

from lmzoo.base.errors import UserError

E = TypeVar("E", bound=StrEnum)


def parse_cuts(kind: type[E], value: object) -> frozenset[E]:
    """Return members of `kind` from names, members or numbers, or from a text such as "0,2"."""
    if isinstance(value, str):
        text = value.replace(";", ",")
        value = [part for part in text.split(",") if part.strip()]
    elif isinstance(value, int):
        value = [value]
    if not isinstance(value, Iterable):
        raise UserError(f"{_noun(kind)}s are names or numbers, got {value!r}")
    return frozenset(_parse_member(kind, item) for item in value)


Canonical = Callable[[frozenset[E]], frozenset[E]]
"""Returns the one set of cuts that stands for all sets with the same function."""


def cuts_of(
    kind: type[E],
    rule: Canonical[E] | Mapping[Any, Collection[E]],
) -> Any:
    """Return the validator of `Cuts` with a rule, for `Annotated[frozenset[Cut], ...]`.

    Sets of cuts that leave one function become one set (`law_equal_functions_have_equal_configs`):
    `rule` has the cuts without effect by a cut, or by a tuple of cuts, that removes what they cut.
    """

    def parse(value: object) -> frozenset[E]:
        cuts = parse_cuts(kind, value)
        if callable(rule):
            return rule(cuts)
        # What a cut removes cannot be cut a second time.
        for path, without_effect in rule.items():
            unread = removed({path: without_effect}, cuts)
            cuts = cuts - unread
        return cuts

    return BeforeValidator(parse)


class _NoRule:
    """Lets pydantic parse `Cuts[Cut]`."""

    # The type of the field is known to pydantic only: `Cuts` has one validator for all enums.
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        [kind] = get_args(source)
        parse = functools.partial(parse_cuts, kind)
        return core_schema.no_info_before_validator_function(parse, handler(source))


Cuts = Annotated[frozenset[E], _NoRule()]
"""The type of a field with cuts: `cuts: Cuts[MyCut] = frozenset()`."""


def removed(
    weights: Mapping[Any, Collection[str]],
    cuts: Collection[str],
) -> set[str]:
    """Return the weights that go with the cuts; those of a tuple go if all its cuts are there."""
    found = set()
    for path, names in weights.items():
        needed = (path,)
        if isinstance(path, tuple):
            needed = path
        # A weight that several parts read goes with the last of them.
        if all(cut in cuts for cut in needed):
            found |= set(names)
    return found


class ZeroWeights:
    """A config whose `zero_weights` are the cuts that equal a weight of zero."""

    zero_weights: ClassVar[Collection[StrEnum]]

    def uncut(self) -> Any:
        """Return the config without the cuts that zero weights can express."""
        config: Any = self
        left = config.cuts - set(self.zero_weights)
        return dataclasses.replace(config, cuts=left)


def numbered(cuts: Iterable[StrEnum]) -> str:
    """Return the cuts by name with their numbers: "carry (6), write (7)"."""
    numbers = {}
    for cut in set(cuts):
        members = list(type(cut))
        numbers[members.index(cut)] = cut
    names = [f"{numbers[i]} ({i})" for i in sorted(numbers)]
    return ", ".join(names)


def _noun(kind: type[StrEnum]) -> str:
    if kind.__name__.endswith("Cut"):
        return "cut"
    return kind.__name__.lower()


def _parse_member(kind: type[E], item: object) -> E:
    members = list(kind)
    text = str(item).strip().lower()
    # A number is the place in the table of cuts.
    if text.isdecimal():
        number = int(text)
        if number < len(members):
            return members[number]
    for member in members:
        if text in (member.value, member.name.lower()):
            return member
    raise UserError(f"no {_noun(kind)} {item!r}; known: {numbered(kind)}")
