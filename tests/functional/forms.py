"""Functions with a fast form, their plain formulas and inputs, and how results are compared."""

from collections.abc import Callable
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
    return [*inputs, torch.randint(vocab, (count,), generator=torch.Generator().manual_seed(seed))]


def softmax_inputs(count: int, seed: int) -> list[Tensor]:
    y, table = normal(seed, (count, 3), (1 + seed % 11, 3))
    return [y * 10.0 ** (seed % 3), table]


def tied_inputs(count: int, seed: int) -> list[Tensor]:
    y, table = softmax_inputs(count, seed)
    return with_tokens([y, table], count, len(table), seed)


def recurrence_inputs(dtype: torch.dtype, steps: int, seed: int) -> list[Tensor]:
    width = 1 + seed % 5
    a, b, start = normal(seed, *2 * [(2, steps, width)], (2, width), dtype=dtype)
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
    x, delta, rate, *rest = normal(seed, each, each, (n, width), inner, inner, (batch, n, width))
    return [x, delta.abs(), rate.exp(), *rest]


def selective_loop(
    x: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor, *, signed: bool
) -> tuple[Tensor, Tensor]:
    outputs = []
    for t in range(x.shape[1]):
        write = b[:, t, :, None] * (delta * x)[:, t, None]
        decay = (-rate * delta[:, t, None]).exp()
        state = (2 * decay - 1 if signed else decay) * state + write
        outputs.append((c[:, t, :, None] * state).sum(1))
    return torch.stack(outputs, 1), state


def convolution_inputs(steps: int, seed: int) -> list[Tensor]:
    width = 1 + seed % 5
    return normal(seed, (2, steps, width), (2, 3, width), (width, 4), (width,))


def shifted_sum(x: Tensor, past: Tensor, taps: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    z = torch.cat([past, x], 1)
    y = [(z[:, t : t + 4] * taps.mT).sum(1) + bias for t in range(x.shape[1])]
    return torch.stack(y, 1), z[:, -3:]


def stored(function: Callable[..., Any], *inputs: Tensor) -> Any:
    """Call a function as on a device without its kernels."""
    with without_kernels("cpu"):
        return function(*inputs)


def matrix_inputs(steps: int, seed: int, *, vector: bool, delta: bool) -> list[Tensor]:
    batch = 2
    heads = 2
    keys = 3
    values = 5
    sizes = [keys, keys, values, keys if vector else 1, *(2 * [keys] if delta else [])]
    shapes = [(batch, steps, heads, size) for size in sizes]
    start, query, key, value, log_decay, *erase = normal(
        seed, (batch, heads, keys, values), *shapes
    )
    return [start, query, key, value, -log_decay.abs(), *(0.3 * x for x in erase)]


def scan_matrices(start: Tensor, *update: Tensor) -> tuple[Tensor, Tensor]:
    return matrix_scan(Update(*update), start)


def matrix_loop(start: Tensor, *update: Tensor) -> tuple[Tensor, Tensor]:
    state = start
    outputs = []
    for t in range(update[0].shape[1]):
        output, state = matrix_step(Update(*(part[:, t] for part in update)), state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


REAL, COMPLEX = (partial(recurrence_inputs, d) for d in (torch.float64, torch.complex128))
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
    **{
        f"selective scan, {signed=}, {kernels=}": Form(
            scan if kernels else partial(stored, scan),
            partial(selective_loop, signed=signed),
            selective_inputs,
        )
        for signed, kernels in ((False, True), (False, False), (True, False))
        for scan in [partial(selective_scan, signed=signed)]
    },
    **{
        f"matrix states, {vector=}, {delta=}": Form(
            scan_matrices, matrix_loop, partial(matrix_inputs, vector=vector, delta=delta)
        )
        for vector, delta in product((False, True), repeat=2)
    },
}


def floats(inputs: list[Tensor]) -> tuple[int, ...]:
    return tuple(i for i, x in enumerate(inputs) if x.is_floating_point() or x.is_complex())


def flat(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if isinstance(outputs, tuple):
        return outputs
    return (outputs,)


def total(function: Callable[..., Any], *inputs: Tensor) -> Tensor:
    """Return a weighted sum of all numbers of all results."""
    parts = (torch.view_as_real(x) if x.is_complex() else x for x in flat(function(*inputs)))
    x = torch.cat([part.flatten() for part in parts])
    return (x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype)).sum()


def results(function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
    """Return the outputs and all gradients."""
    inputs = [x.clone().requires_grad_(i in floats(inputs)) for i, x in enumerate(inputs)]
    leaves = [inputs[i] for i in floats(inputs)]
    gradients = torch.autograd.grad(total(function, *inputs), leaves)
    return [x.detach() for x in (*flat(function(*inputs)), *gradients)]


def agree(found: list[Tensor], expected: list[Tensor], tolerance: float = FINE) -> None:
    for i, (actual, reference) in enumerate(zip(found, expected, strict=True)):
        scale = 1 + (reference.abs().max() if reference.numel() else 0)
        assert_close(actual.to(reference) / scale, reference / scale, tolerance, f"result {i}")
