"""Replay one recorded torch operation into the memory of its recorded result."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload

aten: Any = torch.ops.aten
FACTORY = {"dtype", "layout", "device", "pin_memory", "memory_format"}
"""Arguments that describe a new tensor, not its content."""
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
COPIED = {"clone", "_to_copy"}

T = TypeVar("T")


class Operation:
    """One call of a torch operation: its arguments and its result."""

    def __init__(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        self.op, self.args, self.kwargs, self.result = op, args, kwargs, result
        self.inputs = leaves((args, kwargs), Tensor)
        """All tensors among the arguments."""
        self.outputs = leaves(result, Tensor)
        """All tensors in the result."""

    @property
    def computes(self) -> bool:
        """Whether a replay needs this call; False for views and for uninitialised tensors."""
        if _mutates(self.op):
            return True
        storages = {tensor.untyped_storage().data_ptr() for tensor in self.inputs}
        views = all(tensor.untyped_storage().data_ptr() in storages for tensor in self.outputs)
        return not views and _name(self.op) not in EMPTY

    def relocated(self, relocate: Callable[[Any], Any]) -> "Operation":
        """Return the operation with `relocate` applied to every tensor."""
        trees = (self.args, self.kwargs, self.result)
        return Operation(self.op, *(map_leaves(tree, Tensor, relocate) for tree in trees))

    def replay_function(self) -> Callable[[], object]:
        """Return a function that performs the operation again and writes into `outputs`."""
        outputs, name = self.outputs, _name(self.op)
        if _mutates(self.op):
            return functools.partial(self.op, *self.args, **self.kwargs)
        if name in FILLED:
            return functools.partial(aten.fill_.Scalar, outputs[0], FILLED[name])
        if name in COPIED:
            return functools.partial(aten.copy_.default, outputs[0], self.args[0])
        if variant := _out_variant(self.op):
            op, out_names = variant
            if len(out_names) == len(outputs):
                kwargs = {key: value for key, value in self.kwargs.items() if key not in FACTORY}
                out_kwargs = dict(zip(out_names, outputs, strict=True))
                return functools.partial(op, *self.args, **kwargs, **out_kwargs)
        return self._compute_and_copy

    def _compute_and_copy(self) -> None:
        results = leaves(self.op(*self.args, **self.kwargs), Tensor)
        for output, result in zip(self.outputs, results, strict=True):
            output.copy_(result)


def leaves(tree: Any, kind: type[T]) -> list[T]:
    """Return all instances of a type in nested tuples, lists and dictionaries."""
    if isinstance(tree, kind):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return []
    return [leaf for subtree in tree for leaf in leaves(subtree, kind)]


def map_leaves(tree: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """Return the same tree with the function applied to all instances of a type."""
    if isinstance(tree, kind):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(value, kind, function) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        items = [map_leaves(item, kind, function) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree


@functools.cache
def returns_views(op: OpOverload) -> bool:
    """Whether every result is a view of an argument, so that no memory is read or written."""
    returns = op._schema.returns
    return bool(returns) and all(value.alias_info for value in returns) and not _mutates(op)


@functools.cache
def _name(op: OpOverload) -> str:
    return op._schema.name.removeprefix("aten::")


@functools.cache
def _mutates(op: OpOverload) -> bool:
    """Whether the operation writes to an argument."""
    return any(arg.alias_info and arg.alias_info.is_write for arg in op._schema.arguments)


@functools.cache
def _out_variant(op: OpOverload) -> tuple[OpOverload, list[str]] | None:
    """Return the overload that writes to given tensors, and the names of these arguments."""
    required = [
        (arg.name, str(arg.type)) for arg in op._schema.arguments if arg.name not in FACTORY
    ]
    for overload in op.overloadpacket.overloads():
        variant = getattr(op.overloadpacket, overload)
        out_names = [arg.name for arg in variant._schema.arguments if arg.is_out]
        inputs = [arg for arg in variant._schema.arguments if not arg.is_out]
        accepted = [(arg.name, str(arg.type)) for arg in inputs]
        extra = [arg for arg in inputs if (arg.name, str(arg.type)) not in required]
        if (
            out_names
            and all(arg in accepted for arg in required)
            and all(arg.has_default_value() for arg in extra)
        ):
            return variant, out_names
    return None
