"""How an operation of torch is done again, into the memory that it once wrote."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload

aten: Any = torch.ops.aten
FACTORY = {"dtype", "layout", "device", "pin_memory", "memory_format"}
"""What says how to make a result, not what is in it."""
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
COPIED = {"clone", "_to_copy"}

T = TypeVar("T")


class Operation:
    """An operation, what it was given and what it returned."""

    def __init__(
        self, kind: OpOverload, given: tuple[Any, ...], named: dict[str, Any], found: Any
    ) -> None:
        self.kind, self.given, self.named, self.found = kind, given, named, found
        self.read = leaves((given, named), Tensor)
        """Every tensor that it was given."""
        self.made = leaves(found, Tensor)
        """Every tensor that it returned."""

    @property
    def computes(self) -> bool:
        """Whether anything is to be done again: not for views, nor for memory left empty."""
        if _writes(self.kind):
            return True
        there = {tensor.untyped_storage().data_ptr() for tensor in self.read}
        views = all(tensor.untyped_storage().data_ptr() in there for tensor in self.made)
        return not views and _name(self.kind) not in EMPTY

    def moved(self, move: Callable[[Any], Any]) -> "Operation":
        """The same of tensors elsewhere."""
        trees = (self.given, self.named, self.found)
        return Operation(self.kind, *(mapped(tree, Tensor, move) for tree in trees))

    def again(self) -> Callable[[], object]:
        """What does it again, to what it returned."""
        into, name = self.made, _name(self.kind)
        if _writes(self.kind):
            return functools.partial(self.kind, *self.given, **self.named)
        if name in FILLED:
            return functools.partial(aten.fill_.Scalar, into[0], FILLED[name])
        if name in COPIED:
            return functools.partial(aten.copy_.default, into[0], self.given[0])
        if found := _into(self.kind):
            kind, outs = found
            if len(outs) == len(into):
                named = {key: value for key, value in self.named.items() if key not in FACTORY}
                results = dict(zip(outs, into, strict=True))
                return functools.partial(kind, *self.given, **named, **results)
        return self._copied

    def _copied(self) -> None:
        found = leaves(self.kind(*self.given, **self.named), Tensor)
        for old, new in zip(self.made, found, strict=True):
            old.copy_(new)


def leaves(tree: Any, kind: type[T]) -> list[T]:
    """All of a kind in nested tuples, lists and dictionaries."""
    if isinstance(tree, kind):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return []
    return [leaf for one in tree for leaf in leaves(one, kind)]


def mapped(tree: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The same nesting with all of a kind changed."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {key: mapped(one, kind, change) for key, one in tree.items()}
    if isinstance(tree, tuple | list):
        made = [mapped(one, kind, change) for one in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return tree


def _arguments(kind: OpOverload) -> list[Any]:
    return kind._schema.arguments


@functools.cache
def _name(kind: OpOverload) -> str:
    return kind._schema.name.removeprefix("aten::")


@functools.cache
def looks(kind: OpOverload) -> bool:
    """Whether all that it returns are views of what it is given: no memory is read or written."""
    returns = kind._schema.returns
    return bool(returns) and all(one.alias_info for one in returns) and not _writes(kind)


@functools.cache
def _writes(kind: OpOverload) -> bool:
    """Whether it writes to what it is given."""
    return any(one.alias_info and one.alias_info.is_write for one in _arguments(kind))


@functools.cache
def _into(kind: OpOverload) -> tuple[OpOverload, list[str]] | None:
    """The same operation into given memory, and what that is called; None if there is none."""
    asked = [(one.name, str(one.type)) for one in _arguments(kind) if one.name not in FACTORY]
    for name in kind.overloadpacket.overloads():
        other = getattr(kind.overloadpacket, name)
        outs = [one.name for one in _arguments(other) if one.is_out]
        rest = [one for one in _arguments(other) if not one.is_out]
        known = [(one.name, str(one.type)) for one in rest]
        spare = [one for one in rest if (one.name, str(one.type)) not in asked]
        if (
            outs
            and all(one in known for one in asked)
            and all(o.has_default_value() for o in spare)
        ):
            return other, outs
    return None
