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
from tests.cases import parametrize, rows
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
    fields = {"name": "captions", "train": 8, "valid": 2, "test": 2}
    with CPU:
        return open_corpus(fields)


def build(row, task, members=3, **fields):
    """Return models of a row with seeds 0, 1, ..., drawn on the CPU as those of runs are."""
    device = torch.get_default_device()
    with CPU:
        config = zoo.config(row, **fields)
        models = [zoo.build(config, task, seed) for seed in range(members)]
    return [model.to(device) for model in models]


def error_of(result, reference):
    """Return the largest error, relative to the largest number plus one."""
    error = (result - reference).abs().max()
    scale = 1 + reference.abs().max()
    return (error / scale).item()


def assert_equal_to_step(config, rows, steps, width):
    """Compare outputs and all gradients with those of the loop over `step` in float64.

    An error may be larger than the tolerance where that of the loop in float32 is: near the ends of
    the logit. Return the largest error, relative to the largest number of each result plus one.
    """
    cell = cell_of(config, width, steps)
    x = torch.randn(rows, steps, width, requires_grad=True)
    size = width * cell.num_state_vectors
    start = torch.randn(rows, size, requires_grad=True)
    upstream = torch.randn(rows, steps, width)

    def run(x, start, upstream):
        out = cell.scan(x, start)
        inputs = [x, start, *cell.parameters()]
        # A weight that is cut has no gradient.
        options = {"allow_unused": True, "materialize_grads": True}
        gradients = torch.autograd.grad(out, inputs, upstream, **options)
        return [out] + list(gradients)

    results = run(x, start, upstream)
    node = results[0].grad_fn
    # A centred output is a difference, whose second node is the scan.
    assert "_Scan" in f"{node} {node.next_functions}"
    with without_kernels():
        loops = run(x, start, upstream)
        cell.double()
        wide = [x.double(), start.double(), upstream.double()]
        expected = run(*wide)
    errors = []
    for result, loop, reference in zip(results, loops, expected, strict=True):
        error = error_of(result, reference)
        errors.append(error)
        # The rounding of the loop in float32.
        least = error_of(loop, reference)
        assert error < max(TOLERANCE, 4 * least)
    return max(errors)


def cell_of(config, width, length):
    return CELLS.build(CELLS.parse(config), width, length)


@parametrize("config", VARIANTS + [LOGIT], ids=str)
def test_a_kernel_equals_the_loop_over_step(config):
    assert_equal_to_step(config, 5, 3, 30)


@parametrize("name", KERNEL_CELLS)
@parametrize("sizes", SIZES, ids=str)
def test_a_kernel_accepts_any_number_of_sequences_steps_and_units(name, sizes):
    rows, steps, width = sizes
    assert_equal_to_step({"name": name}, rows, steps, width)


@pytest.mark.slow
@parametrize("name", ["mgu", "mgru"])
def test_the_kernel_of_every_mutant_equals_the_loop_over_step(name):
    reading = []
    for config in mutants(name):
        if not CELLS.build(config, 1, 2).input_blind:
            reading.append(CELLS.dump(config))
    assert len(reading) > 30
    for config in reading:
        assert_equal_to_step(config, 5, 4, 30)


def assert_members_are_computed_as_if_alone(name, members, rows, steps, width):
    """Compare the outputs and gradients of a pack with those of each cell alone."""
    cells = [cell_of(name, width, steps) for _ in range(members)]
    first = cells[0]
    weights, _ = stack_module_state(cells)
    x, upstream = torch.randn(2, members, rows, steps, width)
    size = width * first.num_state_vectors
    start = torch.randn(members, rows, size)

    def run(weights, x, start):
        inputs = (x, start)
        return torch.func.functional_call(first, weights, inputs, strict=True)

    def gradients_of(outputs, upstream, weights):
        total = (outputs * upstream).sum()
        return torch.autograd.grad(total, list(weights))

    # `functional_call` calls a module's `forward`.
    type(first).forward = lambda self, x, start: self.scan(x, start)
    packed = vmap(run)(weights, x, start)
    gradients = gradients_of(packed, upstream, weights.values())
    for p, cell in enumerate(cells):
        alone = cell.scan(x[p], start[p])
        assert torch.allclose(packed[p], alone, atol=1e-6)
        own = gradients_of(alone, upstream[p], cell.parameters())
        for all_members, one in zip(gradients, own, strict=True):
            member = all_members[p]
            assert torch.allclose(member, one, rtol=1e-5, atol=1e-5 * rows)


@parametrize("name", KERNEL_CELLS)
def test_members_are_computed_as_if_alone(name):
    sizes = {"rows": 4, "steps": 5, "width": 8}
    assert_members_are_computed_as_if_alone(name, members=3, **sizes)


@parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@parametrize("shape", [(3, 6, 5), (2, 3, 1, 70)], ids=str)
def test_elementwise_recurrences_equal_a_loop(dtype, shape):
    drawn = torch.randn((3,) + shape, dtype=dtype)
    a, b, g = drawn.unbind()
    # A decay above 1 would grow without bound.
    sizes = a.abs().clamp(min=1)
    a = 0.9 * a / sizes
    # One state for all steps.
    state = shape[:-2] + shape[-1:]
    start = torch.randn(state, dtype=dtype)
    inputs = [tensor.requires_grad_() for tensor in (a, b, start)]
    out = linear_recurrence(*inputs)
    double = torch.promote_types(dtype, torch.float64)
    wide = []
    for tensor in inputs:
        wide.append(tensor.detach().to(double).requires_grad_())
    reference = forms.loop(*wide)
    error = (out - reference).abs()
    assert error.max() < TOLERANCE
    gradients = torch.autograd.grad(out, inputs, g)
    expected = torch.autograd.grad(reference, wide, g)
    for result, gradient in zip(gradients, expected, strict=True):
        assert error_of(result, gradient) < TOLERANCE


@parametrize("row", ["DLM46", "min_gru"])
def test_a_pack_trains_as_without_kernels(row, monkeypatch):
    """On a GPU the third step is recorded, and the others are replayed."""
    corpus = captions()

    def train():
        models = build(row, corpus.task, width=8)
        pack = []
        for seed, model in enumerate(models):
            pack.append(Training(model, Recipe(batch=4), seed))
        # Enough steps that a graph is replayed.
        epochs = 4
        if device_of(models[0]) == CPU:
            epochs = 1
        *_, last = KeptTrainers().fit(pack, corpus, epochs=epochs)
        return [training.record["valid_token"] for training in last]

    results = train()
    monkeypatch.setattr(CudaGraphs, "warmup_steps", 1000)  # no step is recorded
    with without_kernels():
        expected = train()
    assert results == pytest.approx(expected, abs=1e-5)


NAN_CONFIGS = [LOGIT, {"name": "rnn", "activation": "relu"}] + KERNEL_CELLS


@parametrize("config", NAN_CONFIGS, ids=str)
def test_nan_is_kept_as_by_step(config):
    """A run that diverged must not look finite."""
    cell = cell_of(config, 8, 4)
    x = torch.randn(2, 4, 8)
    # One number of one step of one sequence.
    x[0, 1, 3] = torch.nan
    size = 8 * cell.num_state_vectors
    start = torch.rand(2, size)

    def places():
        """Return where outputs and gradients are NaN."""
        inputs = x.clone().requires_grad_()
        out = cell.scan(inputs, start)
        total = out.sum()
        (gradient,) = torch.autograd.grad(total, inputs)
        return out.isnan(), gradient.isnan()

    outputs, gradients = places()
    with without_kernels():
        expected_outputs, expected_gradients = places()
    # NaN reaches an output at all.
    assert outputs.any()
    assert outputs.equal(expected_outputs)
    assert gradients.equal(expected_gradients)
