"""Triton's interpreter with a check of every address, as of `compute-sanitizer memcheck`."""

import numpy as np
import torch
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder


def install(monkeypatch):
    """Let a launch fail that reads or writes outside its tensors."""
    ranges: list[tuple[int, int]] = []
    call = GridExecutor.__call__
    load = InterpreterBuilder.create_masked_load
    store = InterpreterBuilder.create_masked_store

    def launch(self, *args, **kwargs):
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
        ranges[:] = map(extent, tensors)
        return call(self, *args, **kwargs)

    def check(pointers, mask):
        addresses = pointers.data[np.broadcast_to(mask.data, pointers.data.shape).astype(bool)]
        inside = np.zeros(addresses.shape, dtype=bool)
        for begin, end in ranges:
            inside |= (addresses >= begin) & (addresses < end)
        assert inside.all(), "a kernel reads or writes outside its tensors"

    def create_masked_load(self, pointers, mask, *rest):
        check(pointers, mask)
        return load(self, pointers, mask, *rest)

    def create_masked_store(self, pointers, value, mask, *rest):
        check(pointers, mask)
        return store(self, pointers, value, mask, *rest)

    monkeypatch.setattr(GridExecutor, "__call__", launch)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", create_masked_load)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", create_masked_store)


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses from the first to the last element of a tensor."""
    if not tensor.numel():
        return 0, 0
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()
