"""A replay repeats the recorded operations, in memory that live results never share."""

import ctypes
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.kernels.dispatch import as_arrays, run_kernel
from lmzoo.train.pack_recorder import (
    ALIGN,
    MemoryBlock,
    MemoryTrace,
    OperationRecorder,
    plan_offsets,
)
from lmzoo.train.stepper import RecordingError


def _lifetime(length, first, steps):
    return length, first, first + steps


LIFETIME = st.builds(_lifetime, st.integers(1, 500), st.integers(0, 30), st.integers(0, 30))
LIFETIMES = st.lists(LIFETIME, max_size=25)


@given(LIFETIMES)
def test_allocations_are_aligned_and_inside_of_the_block(lifetimes):
    offsets, size = plan_offsets(lifetimes)
    for offset, (length, *_) in zip(offsets, lifetimes, strict=True):
        assert offset % ALIGN == 0
        assert offset + length <= size


@given(LIFETIMES)
def test_live_allocations_do_not_overlap(lifetimes):
    offsets, _ = plan_offsets(lifetimes)
    planned = list(zip(offsets, lifetimes, strict=True))
    for one, other in itertools.combinations(planned, 2):
        offset, (length, first, last) = one
        other_offset, (other_length, other_first, other_last) = other
        places_overlap = offset < other_offset + other_length and other_offset < offset + length
        times_overlap = first <= other_last and other_first <= last
        assert not (places_overlap and times_overlap)


def test_memory_is_reused_after_the_last_use():
    offsets, size = plan_offsets([(100, 0, 1), (64, 0, 4), (60, 2, 3), (120, 3, 4), (64, 3, 5)])
    assert offsets == [0, 128, 0, 192, 64]
    assert size == 192 + 128


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_views_and_arrays_are_relocated_with_their_storage(dtype):
    first = torch.ones(7).double()
    second = torch.arange(24).reshape(2, 3, 4).to(dtype)
    trace = MemoryTrace()
    trace.add_result(first, 0)
    trace.add_result(second, 1)
    offsets, size = trace.plan()
    block = MemoryBlock(size)
    moved = block.relocate(second, trace, offsets)
    moved.copy_(second)
    column = second[:, 1:, 2]
    nothing = second[:, :, :0]
    for view in (second, second[1], second.mT, column, nothing):
        other = block.relocate(view, trace, offsets)
        assert view.equal(other)
        assert view.stride() == other.stride()
        # An empty tensor has no address.
        if other.numel() > 0:
            assert other.data_ptr() != view.data_ptr()
    array = second.numpy()[1:, ::2]
    moved_array = block.relocate(array, trace, offsets)
    assert np.array_equal(moved_array, array)
    moved_array[...] = 0
    assert not moved[1, ::2].any()
    assert second[1, 2].any()


SCRIPT = """
import resource, sys
from lmzoo.train.pack_recorder import retain_freed_memory
assert len(sys.argv) == 1 or retain_freed_memory()
for count in range(7):
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    before = faults if count < 3 else before
    blocks = [bytearray(b'x') * (4 << 20) for _ in range(8)]
    del blocks
print(faults - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no mallopt")
def test_freed_blocks_are_reused():
    def page_faults(*arguments):
        command = [sys.executable, "-c", SCRIPT] + list(arguments)
        return int(subprocess.check_output(command))

    freed = page_faults()
    kept = page_faults("retain")
    # Memory that the system takes back faults again in every page.
    assert kept * 10 < freed


X = torch.arange(12.0).reshape(3, 4) - 5
INDICES = torch.tensor([2, 0, 1])


def _replay_on_new_input(work, column=X):
    """Replay a recording on another column; return the result and the expected result."""
    buffer = column.clone()
    out = work(column).clone()

    def step():
        out.copy_(work(buffer))

    replay = OperationRecorder().record(step)
    # To record is also to execute.
    torch.testing.assert_close(out, work(column), rtol=0, atol=0)
    flipped = column.flip(0)
    buffer.copy_(flipped)
    replay()
    return out, work(flipped)


WORK = {
    "an operation with an out variant": lambda x: (x * 2).exp(),
    "views of views": lambda x: (x + 1).mT[1:].flatten().view(3, 3).sum(0),
    "in place": lambda x: (x + 1).mul_(3).clamp_(min=0),
    "filled, then changed": lambda x: torch.zeros_like(x).add_(x).add_(torch.ones_like(x)),
    "two results": lambda x: x.max(dim=0).values * x.max(dim=0).indices,
    "a list of results": lambda x: torch.stack(list(torch.split_copy(x, 1, dim=0))).sum(0),
    "factory functions": lambda x: x + torch.arange(4) * torch.full((), 3.0),
    "integer indices": lambda x: x[INDICES, :2],
    "another dtype": lambda x: x.long().double(),
    "a copy in another memory order": lambda x: x.mT.contiguous().cumsum(1),
    "a layer norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "a list of arguments": lambda x: torch.cat([x, x[:1] * 2]),
    "an empty view": lambda x: torch.cat([(x + 1)[:, :0], x * 2], dim=1),
    "a constant": lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_replay_repeats_the_operations(work):
    actual, expected = _replay_on_new_input(work)
    assert torch.equal(actual, expected)


def _double(x, y):
    """A stand-in for a kernel, which returns False for an invalid token."""
    y[...] = 2 * x
    return bool((x < 100).all())


def _run_double(x):
    y = x.new_empty(x.shape)
    # The columns of this matrix are contiguous, its rows are not.
    columns_first = x.mT.contiguous().mT
    run_kernel(_double, as_arrays([columns_first, y]))
    return y + 1


def test_kernels_are_replayed_on_relocated_memory():
    actual, expected = _replay_on_new_input(_run_double)
    assert torch.equal(actual, expected)


def test_a_kernel_that_fails_in_a_replay_is_an_error():
    buffer = X.clone()

    def step():
        _run_double(buffer)

    replay = OperationRecorder().record(step)
    replay()
    # Now the stand-in returns False.
    buffer += 100
    with pytest.raises(IndexError, match="a token id of this batch is outside"):
        replay()


def test_other_threads_are_not_recorded():
    buffer = X.clone()
    other_buffer = torch.zeros(3, 4)

    def double():
        run_kernel(_double, as_arrays([X, other_buffer]))

    def step():
        other = threading.Thread(target=double)
        other.start()
        other.join()
        buffer.add_(1)

    replay = OperationRecorder().record(step)
    assert torch.equal(other_buffer, 2 * X)
    other_buffer.zero_()
    replay()
    assert torch.equal(buffer, X + 2)
    # The replay has not written to it.
    assert not other_buffer.any()


def test_recordings_share_one_memory_block():
    recorder = OperationRecorder()
    # The third needs a larger block.
    works = [
        lambda: (X + 1) * 2,
        lambda: (X - 1) * 3,
        lambda: X.expand(100, 3, 4) + 7,
    ]
    outs = [torch.empty_like(work()) for work in works]
    replays = []
    sizes = []
    for work, out in zip(works, outs, strict=True):
        replay = recorder.record(lambda work=work, out=out: out.copy_(work()))
        replays.append(replay)
        sizes.append(recorder._block.size)
    assert sizes[0] == sizes[1] < sizes[2]
    for replay, out, work in zip(replays, outs, works, strict=True):
        out.zero_()
        replay()
        assert out.equal(work())


REJECTED = {
    "_local_scalar_dense.default reads values": lambda: X.sum().item(),
    "equal.default reads values": lambda: X.equal(X),
    "index.Tensor has a result whose shape depends on values": lambda: X[X > 0],
    "nonzero.default has a result whose shape depends on values": lambda: X.nonzero(),
    "rand.default draws random numbers": lambda: torch.rand(2),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_work_that_differs_from_step_to_step_is_rejected_with_the_reason(reason):
    with pytest.raises(RecordingError) as caught:
        OperationRecorder().record(REJECTED[reason])
    assert str(caught.value) == f"aten.{reason}"


def test_a_step_that_keeps_a_result_is_rejected():
    kept = []
    with pytest.raises(RecordingError, match="it keeps a result"):
        OperationRecorder().record(lambda: kept.append(X + 1))
    assert torch.equal(kept[0], X + 1)


def test_an_error_of_the_work_is_raised_unchanged():
    with pytest.raises(RuntimeError, match="size"):
        OperationRecorder().record(lambda: torch.ones(2) @ torch.ones(3))
