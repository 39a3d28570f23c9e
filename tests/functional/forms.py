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


def normal(seed, *shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": dtype}
    return [torch.randn(shape, **options) for shape in shapes]


def with_tokens(inputs, count, vocab, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocab, (count,), generator=generator)
    return inputs + [tokens]


def softmax_inputs(count, seed):
    words = 1 + seed % 11
    # Logits from flat to peaked.
    scale = 10.0 ** (seed % 3)
    shapes = [(count, 3), (words, 3)]
    y, table = normal(seed, *shapes)
    return [y * scale, table]


def tied_inputs(count, seed):
    y, table = softmax_inputs(count, seed)
    words = len(table)
    return with_tokens([y, table], count, words, seed)


def recurrence_inputs(dtype, steps, seed):
    width = 1 + seed % 5
    each = (2, steps, width)
    shapes = [each, each, (2, width)]
    a, b, start = normal(seed, *shapes, dtype=dtype)
    # A decay above 1 would grow without bound.
    sizes = a.abs().clamp_min(1)
    return [a / sizes, b, start]


def loop(a, b, start):
    h = start
    states = []
    steps = zip(a.unbind(-2), b.unbind(-2), strict=True)
    for at, bt in steps:
        h = at * h + bt
        states.append(h)
    return torch.stack(states, dim=-2)


def selective_inputs(steps, seed):
    batch = 2
    n = 3
    width = 1 + seed % 5
    each = (batch, steps, width)
    inner = (batch, steps, n)
    states = (batch, n, width)
    shapes = [each, each, (n, width), inner, inner, states]
    x, delta, rate, b, c, state = normal(seed, *shapes)
    maps = [x, delta.abs(), rate.exp()]
    return maps + [b, c, state]


def selective_loop(x, delta, rate, b, c, state, *, signed):
    inputs = delta * x
    outputs = []
    for t in range(x.shape[1]):
        inputs_t = inputs[:, t, None]
        write = b[:, t, :, None] * inputs_t
        exponent = -rate * delta[:, t, None]
        decay = exponent.exp()
        if signed:
            decay = 2 * decay - 1
        state = decay * state + write
        output = torch.einsum("bn,bnw->bw", c[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


def convolution_inputs(steps, seed):
    width = 1 + seed % 5
    past = (2, 3, width)
    x = (2, steps, width)
    return normal(seed, x, past, (width, 4), (width,))


def shifted_sum(x, past, taps, bias):
    z = torch.cat([past, x], 1)
    outputs = []
    for t in range(x.shape[1]):
        # The width of the taps is four.
        window = z[:, t : t + 4]
        terms = window * taps.mT
        outputs.append(terms.sum(1) + bias)
    past = z[:, -3:]
    return torch.stack(outputs, 1), past


def stored(function, *inputs):
    """Call a function as on a device without its kernels."""
    with without_kernels("cpu"):
        return function(*inputs)


def matrix_inputs(steps, seed, *, vector, delta):
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
    shapes = [(batch, heads, keys, values)]
    shapes += [(batch, steps, heads, size) for size in sizes]
    # With the delta rule, there are two more parts.
    start, query, key, value, log_decay, *erase = normal(seed, *shapes)
    # Small, so that the states do not grow.
    small = [0.3 * part for part in erase]
    small_decay = -log_decay.abs()
    return [start, query, key, value, small_decay] + small


def scan_matrices(start, *update):
    return matrix_scan(Update(*update), start)


def matrix_loop(start, *update):
    state = start
    outputs = []
    steps = update[0].shape[1]
    for t in range(steps):
        parts = [part[:, t] for part in update]
        step = Update(*parts)
        output, state = matrix_step(step, state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


REAL = partial(recurrence_inputs, torch.float64)
COMPLEX = partial(recurrence_inputs, torch.complex128)
TILED = partial(log_normalisers, naive_limit=0)
WHOLE = partial(log_normalisers, naive_limit=1 << 60)
FORMS = {
    "tied softmax": Form(tied_log_prob, naive_tied_log_prob, tied_inputs),
    "log normaliser": Form(TILED, WHOLE, softmax_inputs),
    "recurrence": Form(linear_recurrence, loop, REAL),
    "complex recurrence": Form(linear_recurrence, loop, COMPLEX),
    "doubling": Form(doubling_recurrence, loop, REAL),
    "complex doubling": Form(doubling_recurrence, loop, COMPLEX),
    "convolution": Form(convolve, shifted_sum, convolution_inputs),
}
# These are plain operations of torch, so they have a second derivative.
for name in ("doubling", "complex doubling", "convolution"):
    FORMS[name] = FORMS[name]._replace(has_second=True)


def selective_form(*, signed, kernels):
    scan = partial(selective_scan, signed=signed)
    plain = partial(selective_loop, signed=signed)
    if not kernels:
        scan = partial(stored, scan)
    return Form(scan, plain, selective_inputs)


# The kernel has no signed decays.
SELECTIVE = [(False, True), (False, False), (True, False)]
for signed, kernels in SELECTIVE:
    name = f"selective scan, {signed=}, {kernels=}"
    FORMS[name] = selective_form(signed=signed, kernels=kernels)
for vector, delta in product((False, True), repeat=2):
    name = f"matrix states, {vector=}, {delta=}"
    draw = partial(matrix_inputs, vector=vector, delta=delta)
    FORMS[name] = Form(scan_matrices, matrix_loop, draw)


def floats(inputs):
    """Return the places of the inputs that have gradients."""
    places = []
    for i, x in enumerate(inputs):
        if x.is_floating_point() or x.is_complex():
            places.append(i)
    return tuple(places)


def flat(outputs):
    if isinstance(outputs, tuple):
        return outputs
    return (outputs,)


def total(function, *inputs):
    """Return a weighted sum of all numbers of all results."""
    parts = []
    for result in flat(function(*inputs)):
        if result.is_complex():
            result = torch.view_as_real(result)
        parts.append(result.flatten())
    # Different weights, so that no two numbers can be exchanged.
    numbers = torch.cat(parts)
    count = numbers.numel()
    weights = torch.linspace(-1, 2, count, dtype=numbers.dtype)
    return numbers @ weights


def results(function, inputs):
    """Return the outputs and all gradients."""
    inputs = [x.clone() for x in inputs]
    leaves = [inputs[i].requires_grad_() for i in floats(inputs)]
    gradients = torch.autograd.grad(total(function, *inputs), leaves)
    outputs = flat(function(*inputs))
    return [x.detach() for x in outputs] + list(gradients)


def agree(found, expected, tolerance=FINE):
    """Assert equal results, in relation to the largest number of each."""
    pairs = zip(found, expected, strict=True)
    for i, (actual, reference) in enumerate(pairs):
        scale = 1.0
        if reference.numel():
            scale = 1 + reference.abs().max()
        actual = actual.to(reference) / scale
        assert_close(actual, reference / scale, tolerance, f"result {i}")
