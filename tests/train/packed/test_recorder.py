"""What a tape does again, and what is not the same at every step."""

import subprocess
import sys
import threading

import pytest
import torch

from lmzoo.kernels.dispatch import as_arrays, run_kernel
from lmzoo.train.capture.recorder import Recorder, RecordingError
from lmzoo.train.packed.recorder import OperationRecorder

X = torch.arange(12.0).reshape(3, 4) - 5
UNTIL = torch.tensor([2, 0, 1])


def _again(work, column=X):
    """What `work` makes of the column, when it is replayed on another than it was recorded on."""
    buffer, out = column.clone(), work(column).clone()

    def step():
        out.copy_(work(buffer))

    replay = OperationRecorder().record(step)
    torch.testing.assert_close(out, work(column), rtol=0, atol=0)
    buffer.copy_(column.flip(0))
    replay()
    return out, work(column.flip(0))


WORK = {
    "an operation into given memory": lambda x: (x * 2).exp(),
    "views of views": lambda x: (x + 1).mT[1:].flatten().view(3, 3).sum(0),
    "in place": lambda x: (x + 1).mul_(3).clamp_(min=0),
    "filled, then added to": lambda x: torch.zeros_like(x).add_(x).add_(torch.ones_like(x)),
    "two results": lambda x: x.max(dim=0).values * x.max(dim=0).indices,
    "a list of results": lambda x: torch.stack(list(torch.split_copy(x, 1, dim=0))).sum(0),
    "what is there without a tensor": lambda x: x + torch.arange(4) * torch.full((), 3.0),
    "numbered places": lambda x: x[UNTIL, :2],
    "another type": lambda x: x.long().double(),
    "a copy in another order": lambda x: x.mT.contiguous().cumsum(1),
    "a layer norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "a list in": lambda x: torch.cat([x, x[:1] * 2]),
    "a constant": lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_it_does_again_what_was_done(work):
    found, expected = _again(work)
    assert torch.equal(found, expected)


def _double(x, y):
    """A loop, as far as a tape can tell."""
    y[...] = 2 * x
    return bool((x < 100).all())


def _looped(x):
    y = x.new_empty(x.shape)
    run_kernel(_double, *as_arrays(x.mT.contiguous().mT, y))
    return y + 1


def test_loops_are_run_again_on_what_was_moved():
    found, expected = _again(_looped)
    assert torch.equal(found, expected)


def test_a_loop_that_stops_is_an_error_when_it_is_replayed_too():
    buffer = X.clone()
    replay = OperationRecorder().record(lambda: (_looped(buffer), None)[1])
    replay()
    buffer += 100
    with pytest.raises(IndexError, match="a word of this batch has no row"):
        replay()


def test_gradients_are_done_again():
    weight, slope = torch.ones(4, 2, requires_grad=True), torch.zeros(4, 2)
    buffer = X.clone()

    def step():
        loss = (buffer @ weight).tanh().square().sum()
        slope.copy_(torch.autograd.grad(loss, weight)[0])
        with torch.no_grad():
            weight.sub_(slope, alpha=0.1)

    replay, before = OperationRecorder().record(step), weight.detach().clone()
    buffer.copy_(X.flip(0))
    replay()
    found = weight.detach().clone(), slope.clone()
    with torch.no_grad():
        weight.copy_(before)
    step()
    assert torch.equal(found[0], weight)
    assert torch.equal(found[1], slope)


def test_another_thread_is_not_on_the_tape():
    buffer, theirs = X.clone(), torch.zeros(3, 4)

    def step():
        other = threading.Thread(target=lambda: run_kernel(_double, *as_arrays(X, theirs)))
        other.start()
        other.join()
        buffer.add_(1)

    replay = OperationRecorder().record(step)
    assert torch.equal(theirs, 2 * X)
    theirs.zero_()
    replay()
    assert torch.equal(buffer, X + 2)
    assert not theirs.any()


def test_recordings_share_one_arena():
    tapes, outs = OperationRecorder(), [torch.empty(3, 4), torch.empty(3, 4), torch.empty(1200)]
    works = [lambda: outs[0].copy_((X + 1) * 2), lambda: outs[1].copy_((X - 1) * 3)]
    works.append(lambda: outs[2].copy_((X.expand(100, 3, 4) + 7).flatten()))
    replays, sizes = [], []
    for work in works:
        replays.append(tapes.record(work))
        sizes.append(tapes._arena.size)
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
        (lambda: X.sum().item(), "aten._local_scalar_dense.default reads numbers"),
        (lambda: X.equal(X), "aten.equal.default reads numbers"),
        (lambda: X[X > 0], "aten.index.Tensor makes a shape that depends on numbers"),
        (lambda: X.nonzero(), "aten.nonzero.default makes a shape that depends on numbers"),
        (lambda: torch.rand(2), "aten.rand.default draws"),
    ],
)
def test_what_is_another_at_every_step_is_told(work, reason):
    with pytest.raises(RecordingError) as said:
        OperationRecorder().record(work)
    assert str(said.value) == reason


def test_a_step_that_keeps_what_it_made_is_refused():
    kept = []
    with pytest.raises(RecordingError, match="it keeps what it made"):
        OperationRecorder().record(lambda: kept.append(X + 1))
    assert torch.equal(kept[0], X + 1)


def test_an_error_of_the_work_is_its_own():
    with pytest.raises(RuntimeError, match="size"):
        OperationRecorder().record(lambda: torch.ones(2) @ torch.ones(3))


def test_it_is_a_recorder():
    assert isinstance(OperationRecorder(), Recorder)


IMPORTS = """
import sys
from lmzoo.train.packed.trainer import fit_together
from lmzoo.train.trainer import Training
from lmzoo.train.recipe import Recipe
from tests.laws.fusing import random_corpus
from tests.tiny import tiny
members = [Training(tiny("recurrent_lm"), Recipe(batch=5), seed) for seed in range(2)]
list(fit_together(members, random_corpus(members[0].model), 3))
assert members[0].company.stepper.replays
print(*sys.modules)
"""


def test_torchs_compiler_is_not_imported_to_record():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    assert not {"torch._dynamo", "torch._inductor"} & set(done.stdout.split())
