"""What stands for a CUDA graph where there is none: operations on a tape, on the CPU.

As with a graph, no Python runs when a tape is replayed: every operation is done again on the
very tensors it met, so that a number read while recording, a buffer forgotten or a tensor
replaced shows. Recording leaves all memory as it was, and what would wait for a GPU raises.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmzoo.train.capture.recorder import RecordingError

aten = torch.ops.aten
WAITING = {"_local_scalar_dense", "nonzero", "equal", "_unique2", "unique_dim", "masked_select"}


class Taping:
    """A recorder (`lmzoo.train.capture`) that counts what it does."""

    warm, multiple, rates, does = 2, 4, torch.float32, False

    def __init__(self) -> None:
        self.runs = self.recordings = self.replays = 0

    def run(self, work: Callable[[], None]) -> str:
        self.runs += 1
        work()
        return ""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        tape, drawn = _Tape(), torch.get_rng_state()
        try:
            with tape:
                work()
        finally:
            tape.rewind()
            torch.set_rng_state(drawn)
        self.recordings += 1

        def replay() -> None:
            self.replays += 1
            tape.play()

        return replay


class _Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.before: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name.removeprefix("aten::") in WAITING or _masked(func, args):
            raise RecordingError(f"operation not permitted when stream is capturing: {func}")
        for tensor in _written(func, args, kwargs):
            key = (tensor.data_ptr(), tensor.shape, tensor.stride())
            if key not in self.before:
                self.before[key] = tensor.detach(), tensor.detach().clone()
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out

    @torch.no_grad()
    def rewind(self) -> None:
        for tensor, value in reversed(self.before.values()):
            tensor.copy_(value)

    @torch.no_grad()
    def play(self) -> None:
        for func, args, kwargs, out in self.calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def _masked(func: Any, args: Any) -> bool:
    if func not in (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default):
        return False
    return any(i is not None and i.dtype == torch.bool for i in args[1])


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    found = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        found += [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return found
