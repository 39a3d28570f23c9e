"""A replay repeats the recorded operations; work that differs from step to step is rejected."""

import threading

import pytest
import torch

from lmzoo.kernels.dispatch import as_arrays, run_kernel
from lmzoo.train.pack_recorder import OperationRecorder
from lmzoo.train.recorder import RecordingError

X = torch.arange(12.0).reshape(3, 4) - 5
INDICES = torch.tensor([2, 0, 1])


def _replay_on_new_input(work, column=X):
    """Replay a recording on another column; return the result and the expected result."""
    buffer, out = column.clone(), work(column).clone()

    def step():
        out.copy_(work(buffer))

    replay = OperationRecorder().record(step)
    torch.testing.assert_close(out, work(column), rtol=0, atol=0)
    buffer.copy_(column.flip(0))
    replay()
    return out, work(column.flip(0))


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
    run_kernel(_double, *as_arrays(x.mT.contiguous().mT, y))
    return y + 1


def test_kernels_are_replayed_on_relocated_memory():
    actual, expected = _replay_on_new_input(_run_double)
    assert torch.equal(actual, expected)


def test_a_kernel_that_fails_in_a_replay_is_an_error():
    buffer = X.clone()
    replay = OperationRecorder().record(lambda: (_run_double(buffer), None)[1])
    replay()
    buffer += 100
    with pytest.raises(IndexError, match="a token id of this batch is outside"):
        replay()


def test_other_threads_are_not_recorded():
    buffer, other_buffer = X.clone(), torch.zeros(3, 4)

    def step():
        other = threading.Thread(target=lambda: run_kernel(_double, *as_arrays(X, other_buffer)))
        other.start()
        other.join()
        buffer.add_(1)

    replay = OperationRecorder().record(step)
    assert torch.equal(other_buffer, 2 * X)
    other_buffer.zero_()
    replay()
    assert torch.equal(buffer, X + 2)
    assert not other_buffer.any()


def test_recordings_share_one_memory_block():
    recorder, outs = OperationRecorder(), [torch.empty(3, 4), torch.empty(3, 4), torch.empty(1200)]
    works = [lambda: outs[0].copy_((X + 1) * 2), lambda: outs[1].copy_((X - 1) * 3)]
    works.append(lambda: outs[2].copy_((X.expand(100, 3, 4) + 7).flatten()))
    replays, sizes = [], []
    for work in works:
        replays.append(recorder.record(work))
        sizes.append(recorder._block.size)
    assert sizes[0] == sizes[1] < sizes[2]
    for out, replay in zip(outs, replays, strict=True):
        out.zero_()
        replay()
    assert torch.equal(outs[0], (X + 1) * 2)
    assert torch.equal(outs[1], (X - 1) * 3)
    assert torch.equal(outs[2], (X.expand(100, 3, 4) + 7).flatten())


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda: X.sum().item(), "aten._local_scalar_dense.default reads values"),
        (lambda: X.equal(X), "aten.equal.default reads values"),
        (lambda: X[X > 0], "aten.index.Tensor has a result whose shape depends on values"),
        (lambda: X.nonzero(), "aten.nonzero.default has a result whose shape depends on values"),
        (lambda: torch.rand(2), "aten.rand.default draws random numbers"),
    ],
)
def test_work_that_differs_from_step_to_step_is_rejected_with_the_reason(work, reason):
    with pytest.raises(RecordingError) as caught:
        OperationRecorder().record(work)
    assert str(caught.value) == reason


def test_a_step_that_keeps_a_result_is_rejected():
    kept = []
    with pytest.raises(RecordingError, match="it keeps a result"):
        OperationRecorder().record(lambda: kept.append(X + 1))
    assert torch.equal(kept[0], X + 1)


def test_an_error_of_the_work_is_raised_unchanged():
    with pytest.raises(RuntimeError, match="size"):
        OperationRecorder().record(lambda: torch.ones(2) @ torch.ones(3))
