"""How an operation of torch is done again, into the memory that it once wrote."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

aten: Any = torch.ops.aten
FACTORY = {"dtype", "layout", "device", "pin_memory", "memory_format"}
"""What says how to make a result, not what is in it."""
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
COPIED = {"clone", "_to_copy"}


@dataclass(frozen=True)
class Operation:
    """An operation, what it was given and what it returned."""

    kind: OpOverload
    given: tuple[Any, ...]
    named: dict[str, Any]
    found: Any

    @property
    def read(self) -> list[Tensor]:
        """Every tensor that it was given."""
        return _tensors((self.given, self.named))

    @property
    def made(self) -> list[Tensor]:
        """Every tensor that it returned."""
        return _tensors(self.found)

    @property
    def writes(self) -> bool:
        """Whether it writes to what it was given."""
        return any(one.alias_info and one.alias_info.is_write for one in _arguments(self.kind))

    @property
    def computes(self) -> bool:
        """Whether anything is to be done again: not for views, nor for memory left empty."""
        if self.writes:
            return True
        there = {tensor.untyped_storage().data_ptr() for tensor in self.read}
        views = all(tensor.untyped_storage().data_ptr() in there for tensor in self.made)
        return not views and _name(self.kind) not in EMPTY

    def moved(self, move: Callable[[Any], Any]) -> "Operation":
        """The same of tensors elsewhere."""
        found = (tree_map_only(Tensor, move, one) for one in (self.given, self.named, self.found))
        return Operation(self.kind, *found)

    def again(self) -> Callable[[], object]:
        """What does it again, to what it returned."""
        into, name = self.made, _name(self.kind)
        if self.writes:
            return functools.partial(self.kind, *self.given, **self.named)
        if name in FILLED:
            return functools.partial(aten.fill_.Scalar, into[0], FILLED[name])
        if name in COPIED:
            return functools.partial(aten.copy_.default, into[0], self.given[0])
        if found := _into(self.kind):
            kind, outs = found
            if len(outs) == len(into):
                named = {key: value for key, value in self.named.items() if key not in FACTORY}
                return functools.partial(
                    kind, *self.given, **named, **dict(zip(outs, into, strict=True))
                )
        return self._copied

    def _copied(self) -> None:
        found = _tensors(self.kind(*self.given, **self.named))
        for old, new in zip(self.made, found, strict=True):
            old.copy_(new)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _arguments(kind: OpOverload) -> list[Any]:
    return kind._schema.arguments


def _name(kind: OpOverload) -> str:
    return kind._schema.name.removeprefix("aten::")


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
