"""The values of the options of a config, so that laws run at all of them and not at the defaults.

An option is a field with few values: a bool, an enum, a literal, a choice of a search space, or a
set of parts, such as cuts. Numbers without a choice have no values to go through. A case has its
label, "beta_max=2.0", and its fields.
"""

import enum
import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice
from lmzoo.zoo import overlay

Case = tuple[str, dict[str, Any]]

UNPROMISED = {
    r"norm=time_std(,|$)": "it reads later tokens, and `leaks` says so",
    r"smoothing=none": "n-grams that were not seen have −∞",
    r"objective=bound": "scores in training are a bound, no density",
    r"^hgrn2, .*carry": "N removes q · k of one head, so that the weights behind it learn nothing",
    r"^mamba2, cuts=b[+]skip": "N removes c · b, which is all that these weights make",
    r"^mlstm, heads=1, cuts=skip": "N removes the scale of one head: all that bias_i makes",
    r"^mgru, cuts=(input_to_candidate|write), keep": "no input reaches the state, which stays 0",
}
"""Patterns of cases that do not obey every law, and why."""


def unpromised(label: str) -> str:
    """Return why a case does not obey every law, or ""."""
    for case, why in UNPROMISED.items():
        if re.search(case, label):
            return why
    return ""


def option_values(config: type) -> dict[str, list[Any]]:
    """Return the values of each option, as JSON has them; of a nested config by path."""
    found = {}
    for name, hint in get_type_hints(config, include_extras=True).items():
        values = []
        for kind in _kinds(hint):
            values += _values(kind)
            # Options of a part, such as an emission, are options of the model.
            if hasattr(kind, "__pydantic_fields__"):
                for path, own in option_values(kind).items():
                    found[f"{name}.{path}"] = own
        distinct = []
        for value in values:
            if value not in distinct:
                # Not a set: values may be lists.
                distinct.append(value)
        if distinct:
            found[name] = distinct
    return found


def one_at_a_time(config: type) -> Iterator[Case]:
    """Yield each value of each option."""
    for path, values in option_values(config).items():
        for value in values:
            yield _case(path, value)


def pairs(config: type) -> Iterator[Case]:
    """Yield each two values of different options, and each two parts of a set."""
    cases = list(one_at_a_time(config))
    for (first, one), (second, other) in itertools.combinations(cases, 2):
        path, _, _ = first.partition("=")
        # Two values of one field exclude each other.
        if not second.startswith(f"{path}="):
            yield f"{first}, {second}", overlay(one, other)
    for path, values in option_values(config).items():
        sets = [value for value in values if isinstance(value, list)]
        for one, other in itertools.combinations(sets, 2):
            # Except of sets, which can be joined.
            yield _case(path, one + other)


def cases(config: type, accept: Callable[[dict[str, Any]], Any]) -> tuple[list[Case], list[Case]]:
    """Return the values of all options, and the pairs of values, that differ from all before.

    `accept` returns what the fields of a case make, or raises a `UserError`.
    """
    # The default is known: options that change nothing are left out.
    seen = [accept({})]
    found = []
    for every in (one_at_a_time(config), pairs(config)):
        kind: list[Case] = []
        for label, fields in every:
            try:
                made = accept(fields)
            except UserError:
                continue
            if made not in seen:
                seen.append(made)
                kind.append((label, fields))
        found.append(kind)
    single, double = found
    return single, double


def some(found: list[Case], count: int) -> list[Case]:
    """Return a random part of the cases."""
    count = min(count, len(found))
    return random.Random(0).sample(found, count)


def _case(path: str, value: Any) -> Case:
    shown = value
    if isinstance(value, list):
        # Cuts, as on the command line.
        shown = "+".join(value)
    label = f"{path}={shown}"
    fields: Any = value
    for name in reversed(path.split(".")):
        fields = {name: fields}
    return label, fields


def _kinds(hint: Any) -> Iterator[Any]:
    """Yield the types and choices in a hint; a set and a literal as a whole."""
    yield hint
    if get_origin(hint) not in (frozenset, Literal):
        for part in get_args(hint):
            yield from _kinds(part)


def _values(kind: Any) -> list[Any]:
    if kind is bool:
        return [False, True]
    if isinstance(kind, Choice):
        return list(kind.values)
    if get_origin(kind) is Literal:
        return [getattr(value, "value", value) for value in get_args(kind)]
    if get_origin(kind) is frozenset:
        (options,) = get_args(kind)
        # One cut at a time; `pairs` joins them.
        return [[part] for part in _values(options)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [member.value for member in kind]
    return []
