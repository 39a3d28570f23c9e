"""GPU kernels in Triton's interpreter against the loop over `step` in float64.

`test_interpreted.py` runs this file in a process with TRITON_INTERPRET=1.
"""

import pytest
import torch
from torch.func import stack_module_state, vmap

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.data.corpus import open_corpus
from lmzoo.functional.linear_recurrence import linear_recurrence
from lmzoo.kernels.device import CPU, device_of
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.stepper import CudaGraphs
from lmzoo.train.trainer import Training
from tests.cases import rows
from tests.functional import forms
from tests.kernels.variants import mutants

VARIANTS = rows("kernels/cases.toml", "on_a_gpu")
LOGIT = {"name": "mgru", "mutations": [4, 6, 9]}
"""Its gate reads a logit, which magnifies rounding, so only the default precision is tested."""
KERNEL_CELLS = ["mgu", "mgru", "rnn", "gru", "lstm"]
SIZES = [(3, 5, 8), (17, 1, 33), (35, 2, 16)]
"""Sequences, steps and units: neither a multiple of a program's rows nor a power of two."""
TOLERANCE = 2e-6


def captions():
    """Return a small corpus; the data are on the CPU, wherever models are."""
    with CPU:
        return open_corpus({"name": "captions", "train": 8, "valid": 2, "test": 2})


def build(row, task, members=3, **fields):
    """Return models of a row with seeds 0, 1, ..., drawn on the CPU as those of runs are."""
    device = torch.get_default_device()
    with CPU:
        models = [zoo.build(zoo.config(row, **fields), task, seed) for seed in range(members)]
    return [model.to(device) for model in models]


def error_of(result, reference):
    """Return the largest error, relative to the largest number plus one."""
    return ((result - reference).abs().max() / (1 + reference.abs().max())).item()


def assert_equal_to_step(config, rows, steps, width):
    """Compare outputs and all gradients with those of the loop over `step` in float64.

    An error may be larger than the tolerance where that of the loop in float32 is: near the ends of
    the logit. Return the largest error, relative to the largest number of each result plus one.
    """
    torch.manual_seed(0)
    cell = CELLS.build(CELLS.parse(config), width, steps)
    x = torch.randn(rows, steps, width, requires_grad=True)
    start = torch.randn(rows, width * cell.num_state_vectors, requires_grad=True)
    upstream = torch.randn(rows, steps, width)

    def run(x, start, upstream):
        out = cell.scan(x, start)
        inputs = [x, start, *cell.parameters()]
        gradients = torch.autograd.grad(
            out, inputs, upstream, allow_unused=True, materialize_grads=True
        )
        return out, *gradients

    results = run(x, start, upstream)
    node = results[0].grad_fn
    assert "_Scan" in f"{node} {node.next_functions}"  # a centred output is a difference
    with without_kernels():
        loops = run(x, start, upstream)
        cell.double()
        expected = run(x.double(), start.double(), upstream.double())
    errors = []
    for result, loop, reference in zip(results, loops, expected, strict=True):
        error = error_of(result, reference)
        errors.append(error)
        assert error < max(TOLERANCE, 4 * error_of(loop, reference))
    return max(errors)


@pytest.mark.parametrize("config", [*VARIANTS, LOGIT], ids=str)
def test_a_kernel_equals_the_loop_over_step(config):
    assert_equal_to_step(config, 5, 3, 30)


@pytest.mark.parametrize("name", KERNEL_CELLS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_kernel_accepts_any_number_of_sequences_steps_and_units(name, sizes):
    assert_equal_to_step({"name": name}, *sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mgu", "mgru"])
def test_the_kernel_of_every_mutant_equals_the_loop_over_step(name):
    reading = [c for c in mutants(name) if not CELLS.build(c, 1, 2).input_blind]
    assert len(reading) > 30
    for config in reading:
        assert_equal_to_step(CELLS.dump(config), 5, 4, 30)


def assert_members_are_computed_as_if_alone(name, members, rows, steps, width):
    """Compare the outputs and gradients of a pack with those of each cell alone."""
    torch.manual_seed(0)
    cells = [CELLS.build(CELLS.parse(name), width, steps) for _ in range(members)]
    weights, _ = stack_module_state(cells)
    x, upstream = torch.randn(2, members, rows, steps, width)
    start = torch.randn(members, rows, width * cells[0].num_state_vectors)

    def run(weights, x, start):
        return torch.func.functional_call(cells[0], weights, (x, start), strict=True)

    type(cells[0]).forward = lambda self, x, start: self.scan(x, start)
    packed = vmap(run)(weights, x, start)
    gradients = torch.autograd.grad((packed * upstream).sum(), list(weights.values()))
    for p, cell in enumerate(cells):
        alone = cell.scan(x[p], start[p])
        assert torch.allclose(packed[p], alone, atol=1e-6)
        own = torch.autograd.grad((alone * upstream[p]).sum(), list(cell.parameters()))
        for all_members, one in zip(gradients, own, strict=True):
            assert torch.allclose(all_members[p], one, rtol=1e-5, atol=1e-5 * rows)


@pytest.mark.parametrize("name", KERNEL_CELLS)
def test_members_are_computed_as_if_alone(name):
    assert_members_are_computed_as_if_alone(name, members=3, rows=4, steps=5, width=8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(3, 6, 5), (2, 3, 1, 70)], ids=str)
def test_elementwise_recurrences_equal_a_loop(dtype, shape):
    torch.manual_seed(0)
    a, b, g = torch.randn(3, *shape, dtype=dtype).unbind()
    a = 0.9 * a / a.abs().clamp(min=1)
    start = torch.randn(*shape[:-2], shape[-1], dtype=dtype)
    inputs = [tensor.requires_grad_() for tensor in (a, b, start)]
    out = linear_recurrence(*inputs)
    double = torch.promote_types(dtype, torch.float64)
    wide = [tensor.detach().to(double).requires_grad_() for tensor in inputs]
    reference = forms.loop(*wide)
    assert (out - reference).abs().max() < TOLERANCE
    gradients = torch.autograd.grad(out, inputs, g)
    expected = torch.autograd.grad(reference, wide, g)
    for result, gradient in zip(gradients, expected, strict=True):
        assert error_of(result, gradient) < TOLERANCE


@pytest.mark.parametrize("row", ["DLM46", "min_gru"])
def test_a_pack_trains_as_without_kernels(row, monkeypatch):
    """On a GPU the third step is recorded, and the others are replayed."""
    corpus = captions()

    def train():
        models = build(row, corpus.task, width=8)
        pack = [Training(model, Recipe(batch=4), seed) for seed, model in enumerate(models)]
        epochs = 4
        if device_of(models[0]) == CPU:
            epochs = 1
        *_, last = KeptTrainers().fit(pack, corpus, epochs=epochs)
        return [training.record["valid_token"] for training in last]

    results = train()
    monkeypatch.setattr(CudaGraphs, "warmup_steps", 1000)  # no step is recorded
    with without_kernels():
        assert results == pytest.approx(train(), abs=1e-5)


@pytest.mark.parametrize(
    "config", [LOGIT, {"name": "rnn", "activation": "relu"}, *KERNEL_CELLS], ids=str
)
def test_nan_is_kept_as_by_step(config):
    """A run that diverged must not look finite."""
    torch.manual_seed(0)
    cell = CELLS.build(CELLS.parse(config), 8, 4)
    x = torch.randn(2, 4, 8)
    x[0, 1, 3] = torch.nan
    start = torch.rand(2, 8 * cell.num_state_vectors)

    def places():
        """Return where outputs and gradients are NaN."""
        inputs = x.clone().requires_grad_()
        out = cell.scan(inputs, start)
        (gradient,) = torch.autograd.grad(out.sum(), inputs)
        return out.isnan(), gradient.isnan()

    outputs, gradients = places()
    with without_kernels():
        expected_outputs, expected_gradients = places()
    assert outputs.any()
    assert outputs.equal(expected_outputs)
    assert gradients.equal(expected_gradients)
