"""Triton's interpreter with a check of every address, as of `compute-sanitizer memcheck`."""

import numpy as np
import torch
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder


def install(monkeypatch):
    """Let a launch fail that reads or writes outside its tensors."""
    ranges = []
    call = GridExecutor.__call__
    load = InterpreterBuilder.create_masked_load
    store = InterpreterBuilder.create_masked_store

    def launch(self, *args, **kwargs):
        # Those of the last launch are no longer valid.
        ranges.clear()
        for arg in [*args, *kwargs.values()]:
            if isinstance(arg, torch.Tensor):
                ranges.append(extent(arg))
        return call(self, *args, **kwargs)

    def check(pointers, mask):
        # Masked addresses may be anywhere.
        used = np.broadcast_to(mask.data, pointers.data.shape)
        addresses = pointers.data[used.astype(bool)]
        inside = np.zeros(addresses.shape, dtype=bool)
        for begin, end in ranges:
            within = (addresses >= begin) & (addresses < end)
            inside |= within
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


def extent(tensor):
    """Return the addresses from the first to the last element of a tensor."""
    if not tensor.numel():
        return 0, 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    begin = tensor.data_ptr()
    count = last + 1
    return begin, begin + count * tensor.element_size()
