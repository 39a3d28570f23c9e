"""Live allocations never share memory, relocated buffers keep their shape, freed memory is kept."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.train.memory_plan import ALIGN, MemoryBlock, MemoryTrace, plan_offsets

LIFETIMES = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 30), st.integers(0, 30)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    max_size=25,
)


@given(LIFETIMES)
def test_live_allocations_do_not_overlap(lifetimes):
    offsets, size = plan_offsets(lifetimes)
    planned = list(zip(offsets, lifetimes, strict=True))
    assert all(offset % ALIGN == 0 for offset in offsets)
    assert all(offset + length <= size for offset, (length, *_) in planned)
    for i, (offset, (length, first, last)) in enumerate(planned):
        for other, (other_length, other_first, other_last) in planned[:i]:
            disjoint = offset + length <= other or other + other_length <= offset
            assert disjoint or last < other_first or other_last < first


def test_memory_is_reused_after_the_last_use():
    offsets, size = plan_offsets([(100, 0, 1), (64, 0, 4), (60, 2, 3), (120, 3, 4), (64, 3, 5)])
    assert offsets == [0, 128, 0, 192, 64]
    assert size == 192 + 128


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_views_and_arrays_are_relocated_with_their_storage(dtype):
    first, second = torch.ones(7).double(), torch.arange(24).reshape(2, 3, 4).to(dtype)
    trace = MemoryTrace()
    trace.add_result(first, 0)
    trace.add_result(second, 1)
    offsets, size = trace.plan()
    block = MemoryBlock(size)
    views = [second, second[1], second.mT, second[:, 1:, 2], second[:, :, :0]]
    relocated = [block.relocate(view, trace, offsets) for view in views]
    relocated[0].copy_(second)
    for view, other in zip(views, relocated, strict=True):
        assert torch.equal(view, other)
        assert view.stride() == other.stride()
        assert other.numel() == 0 or other.data_ptr() != view.data_ptr()
    array = second.numpy()[1:, ::2]
    relocated_array = block.relocate(array, trace, offsets)
    assert np.array_equal(relocated_array, array)
    relocated_array[...] = 0
    assert not relocated[0][1, ::2].any()
    assert second[1, 2].any()


SCRIPT = """
import resource, sys
from lmzoo.train.memory_plan import retain_freed_memory
assert len(sys.argv) == 1 or retain_freed_memory()
for count in range(7):
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    before = faults if count < 3 else before
    blocks = [bytearray(b'x') * (4 << 20) for _ in range(8)]
    del blocks
print(faults - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no mallopt")
def test_freed_blocks_are_reused() -> None:
    """Counts page faults."""
    command = [sys.executable, "-c", SCRIPT]
    kept, freed = (int(subprocess.check_output([*command, *own])) for own in (["retain"], []))
    assert kept * 10 < freed
