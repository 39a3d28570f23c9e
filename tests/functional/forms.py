"""Functions with a fast form, their plain formulas and inputs, and how results are compared."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmzoo.functional.convolution import convolve
from lmzoo.functional.linear_recurrence import doubling_recurrence, linear_recurrence
from lmzoo.functional.matrix_state import Update, matrix_scan, matrix_step
from lmzoo.functional.selective_scan import selective_scan
from lmzoo.functional.tied_softmax import log_normalisers, naive_tied_log_prob, tied_log_prob
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.laws.tiny import assert_close
from tests.tiny import FINE


class Form(NamedTuple):
    fast: Callable[..., Any]
    plain: Callable[..., Any]
    draw: Callable[[int, int], list[Tensor]]
    """(positions or steps, seed) -> inputs in float64, tokens last."""
    single: float = 2e-5
    """The tolerance in float32, relative to the largest number of a result."""
    has_second: bool = False
    """Whether it has a second derivative; all others must raise."""


def normal(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def with_tokens(inputs: list[Tensor], count: int, vocab: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return inputs + [torch.randint(vocab, (count,), generator=generator)]


def softmax_inputs(count: int, seed: int) -> list[Tensor]:
    words = 1 + seed % 11
    # Logits from flat to peaked.
    scale = 10.0 ** (seed % 3)
    y, table = normal(seed, (count, 3), (words, 3))
    return [y * scale, table]


def tied_inputs(count: int, seed: int) -> list[Tensor]:
    y, table = softmax_inputs(count, seed)
    return with_tokens([y, table], count, len(table), seed)


def recurrence_inputs(dtype: torch.dtype, steps: int, seed: int) -> list[Tensor]:
    width = 1 + seed % 5
    each = (2, steps, width)
    a, b, start = normal(seed, each, each, (2, width), dtype=dtype)
    # A decay above 1 would grow without bound.
    return [a / a.abs().clamp_min(1), b, start]


def loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    h = start
    states = []
    for at, bt in zip(a.unbind(-2), b.unbind(-2), strict=True):
        h = at * h + bt
        states.append(h)
    return torch.stack(states, dim=-2)


def selective_inputs(steps: int, seed: int) -> list[Tensor]:
    batch = 2
    n = 3
    width = 1 + seed % 5
    each = (batch, steps, width)
    inner = (batch, steps, n)
    states = (batch, n, width)
    x, delta, rate, b, c, state = normal(seed, each, each, (n, width), inner, inner, states)
    return [x, delta.abs(), rate.exp(), b, c, state]


def selective_loop(
    x: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor, *, signed: bool
) -> tuple[Tensor, Tensor]:
    inputs = delta * x
    outputs = []
    for t in range(x.shape[1]):
        write = b[:, t, :, None] * inputs[:, t, None]
        decay = torch.exp(-rate * delta[:, t, None])
        if signed:
            decay = 2 * decay - 1
        state = decay * state + write
        outputs.append(torch.einsum("bn,bnw->bw", c[:, t], state))
    return torch.stack(outputs, 1), state


def convolution_inputs(steps: int, seed: int) -> list[Tensor]:
    width = 1 + seed % 5
    return normal(seed, (2, steps, width), (2, 3, width), (width, 4), (width,))


def shifted_sum(x: Tensor, past: Tensor, taps: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    z = torch.cat([past, x], 1)
    outputs = []
    for t in range(x.shape[1]):
        window = z[:, t : t + 4]
        outputs.append((window * taps.mT).sum(1) + bias)
    return torch.stack(outputs, 1), z[:, -3:]


def stored(function: Callable[..., Any], *inputs: Tensor):
    """Call a function as on a device without its kernels."""
    with without_kernels("cpu"):
        return function(*inputs)


def matrix_inputs(steps: int, seed: int, *, vector: bool, delta: bool) -> list[Tensor]:
    batch = 2
    heads = 2
    keys = 3
    values = 5
    decays = 1
    if vector:
        decays = keys
    sizes = [keys, keys, values, decays]
    if delta:
        sizes += [keys, keys]
    shapes = [(batch, steps, heads, size) for size in sizes]
    start, query, key, value, log_decay, *erase = normal(
        seed, (batch, heads, keys, values), *shapes
    )
    # Small, so that the states do not grow.
    small = [0.3 * part for part in erase]
    return [start, query, key, value, -log_decay.abs()] + small


def scan_matrices(start: Tensor, *update: Tensor) -> tuple[Tensor, Tensor]:
    return matrix_scan(Update(*update), start)


def matrix_loop(start: Tensor, *update: Tensor) -> tuple[Tensor, Tensor]:
    state = start
    outputs = []
    for t in range(update[0].shape[1]):
        step = Update(*(part[:, t] for part in update))
        output, state = matrix_step(step, state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


REAL = partial(recurrence_inputs, torch.float64)
COMPLEX = partial(recurrence_inputs, torch.complex128)
FORMS = {
    "tied softmax": Form(tied_log_prob, naive_tied_log_prob, tied_inputs),
    "log normaliser": Form(
        partial(log_normalisers, naive_limit=0),
        partial(log_normalisers, naive_limit=1 << 60),
        softmax_inputs,
    ),
    "recurrence": Form(linear_recurrence, loop, REAL),
    "complex recurrence": Form(linear_recurrence, loop, COMPLEX),
    "doubling": Form(doubling_recurrence, loop, REAL, has_second=True),
    "complex doubling": Form(doubling_recurrence, loop, COMPLEX, has_second=True),
    "convolution": Form(convolve, shifted_sum, convolution_inputs, has_second=True),
}


def selective_form(*, signed: bool, kernels: bool) -> Form:
    scan = partial(selective_scan, signed=signed)
    plain = partial(selective_loop, signed=signed)
    if not kernels:
        scan = partial(stored, scan)
    return Form(scan, plain, selective_inputs)


# The kernel has no signed decays.
for signed, kernels in ((False, True), (False, False), (True, False)):
    name = f"selective scan, {signed=}, {kernels=}"
    FORMS[name] = selective_form(signed=signed, kernels=kernels)
for vector, delta in product((False, True), repeat=2):
    draw = partial(matrix_inputs, vector=vector, delta=delta)
    FORMS[f"matrix states, {vector=}, {delta=}"] = Form(scan_matrices, matrix_loop, draw)


def floats(inputs: list[Tensor]) -> tuple[int, ...]:
    return tuple(i for i, x in enumerate(inputs) if x.is_floating_point() or x.is_complex())


def flat(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if isinstance(outputs, tuple):
        return outputs
    return (outputs,)


def total(function: Callable[..., Any], *inputs: Tensor) -> Tensor:
    """Return a weighted sum of all numbers of all results."""
    parts = []
    for result in flat(function(*inputs)):
        if result.is_complex():
            result = torch.view_as_real(result)
        parts.append(result.flatten())
    # Different weights, so that no two numbers can be exchanged.
    numbers = torch.cat(parts)
    return numbers @ torch.linspace(-1, 2, numbers.numel(), dtype=numbers.dtype)


def results(function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
    """Return the outputs and all gradients."""
    inputs = [x.clone() for x in inputs]
    leaves = [inputs[i].requires_grad_() for i in floats(inputs)]
    gradients = torch.autograd.grad(total(function, *inputs), leaves)
    outputs = [x.detach() for x in flat(function(*inputs))]
    return outputs + list(gradients)


def agree(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = FINE):
    """Assert equal results, in relation to the largest number of each."""
    for i, (actual, reference) in enumerate(zip(found, expected, strict=True)):
        scale = 1.0
        if reference.numel():
            scale = 1 + reference.abs().max()
        assert_close(actual.to(reference) / scale, reference / scale, tolerance, f"result {i}")
