"""A stand-in for CUDA graphs on the CPU.

As with a CUDA graph, a replay runs no Python: it performs every recorded operation on the tensors
that it was recorded with. Tests therefore notice a value that was read during the recording, a
forgotten buffer or a replaced tensor. Recording leaves all memory unchanged, and operations that
would synchronise with a GPU raise.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmzoo.train.stepper import RecordingError

aten = torch.ops.aten
SYNCS = {"_local_scalar_dense", "nonzero", "equal", "_unique2", "unique_dim", "masked_select"}


class FakeRecorder:
    """A `Recorder` that counts runs, recordings and replays."""

    warmup_steps = 2
    few_shapes = True
    rate_dtype = torch.float32
    runs_while_recording = False

    def __init__(self):
        self.runs = self.recordings = self.replays = 0

    def run(self, work: Callable[[], None]) -> str:
        self.runs += 1
        work()
        return ""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        recording = _Recording()
        generator_state = torch.get_rng_state()
        try:
            with recording:
                work()
        finally:
            recording.undo()
            torch.set_rng_state(generator_state)
        self.recordings += 1

        def replay():
            self.replays += 1
            recording.replay()

        return replay


class _Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.before: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in SYNCS or _indexes_by_mask(func, args):
            raise RecordingError(f"operation not permitted when stream is capturing: {func}")
        for tensor in _written(func, args, kwargs):
            key = (tensor.data_ptr(), tensor.shape, tensor.stride())
            if key not in self.before:
                self.before[key] = tensor.detach(), tensor.detach().clone()
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out

    @torch.no_grad()
    def undo(self):
        for tensor, value in reversed(self.before.values()):
            tensor.copy_(value)

    @torch.no_grad()
    def replay(self):
        for func, args, kwargs, out in self.calls:
            repeated = func(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(repeated), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def _indexes_by_mask(func, args) -> bool:
    if func not in (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default):
        return False
    return any(i is not None and i.dtype == torch.bool for i in args[1])


def _written(func, args, kwargs) -> list[torch.Tensor]:
    """Return the arguments that the operation writes to."""
    tensors = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if i < len(args):
            value = args[i]
        else:
            value = kwargs.get(argument.name)
        tensors += [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return tensors
