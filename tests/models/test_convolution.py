"""Convolutional models: the gated one, H3 and BaseConv equal their definitions."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import conv1d, pad

from lmzoo import zoo
from lmzoo.models.convolution import Cut, H3Mixer
from tests.cases import cases
from tests.models.equivalence import small
from tests.tiny import assert_equal_double, every_sequence

GATED = "gated_convolution"
FUNCTIONS = {"identity": nn.Identity(), "tanh": torch.tanh, "relu": torch.relu}


def convolved(convolution, x, width, window):
    """Return torch's causal convolution of x (B, E, t), whose oldest weight is the first."""
    zeros = torch.zeros(width, width).double()
    earlier = [zeros] * (window - 1)
    if convolution.past is not None:
        past = convolution.past.weight
        earlier = list(past.split(width, dim=1))
    now = convolution.now
    # Ours has the present token first, torch the oldest.
    ordered = [now.weight] + earlier
    taps = torch.stack(ordered, dim=2)
    padded = pad(x, (window - 1, 0))
    return conv1d(padded, taps.flip(2), now.bias)


def reference(model, tokens):
    """Return the features, computed with `conv1d` on channels first."""
    c = model.config
    # Channels first, as torch has them.
    x = model.embedding(tokens).mT
    for layer in model.layers:
        value = convolved(layer.value, x, c.width, c.window)
        y = FUNCTIONS[c.activation](value)
        if Cut.GATE not in c.cuts:
            gate = convolved(layer.gate, x, c.width, c.window)
            if Cut.SQUASH not in c.cuts:
                gate = gate.sigmoid()
            y = y * gate
        if Cut.RESIDUAL not in c.cuts:
            y = x + y
        x = y
    return x.mT


@torch.no_grad()
@cases("models/cases.toml", "gated", "fields")
def test_features_equal_torch_convolutions(fields):
    model = small(GATED, **fields).double()
    for parameter in model.parameters():
        parameter.add_(0.1)  # biases start at 0
    tokens, _ = every_sequence(model.task)
    actual = model.features(tokens)
    expected = reference(model, tokens)
    assert_equal_double(actual, expected)


def test_cuts_of_a_gate_that_is_cut_do_not_count():
    whole = zoo.config(GATED, cuts="gate, squash, gate_past")
    assert whole == zoo.config(GATED, cuts="gate")


def by_fft(x, kernel):
    """Return the causal convolution of (B, t, E) with (E, T)."""
    t = x.shape[1]
    # Padded to 2t, so that the end does not wrap around to the beginning.
    of_inputs = torch.fft.rfft(x.mT, 2 * t)
    within = kernel[:, :t]
    of_kernel = torch.fft.rfft(within, 2 * t)
    both = torch.fft.irfft(of_inputs * of_kernel, 2 * t)
    return both[..., :t].mT


def mixer(width, size, states, length):
    """Return a layer of H3 whose decays and frequencies differ from the initial ones."""
    layer = H3Mixer(width, size, states, length)
    layer.double()
    for parameter in (layer.log_decay, layer.frequency):
        parameter.add_(torch.randn_like(parameter))
    return layer


@torch.no_grad()
def test_the_kernel_of_h3_is_that_of_its_state_space():
    layer = mixer(6, 2, 4, 9)
    step = layer.log_step.exp()[:, None]
    rate = layer.log_decay.exp()
    a = torch.complex(-rate, layer.frequency)
    c = torch.view_as_complex(layer.read)
    # The response of the bilinear rule to an impulse.
    half = step * a / 2
    divisor = 1 - half
    decay = (1 + half) / divisor
    state = step / divisor
    taps = []
    for _ in range(9):
        response = (c * state).sum(-1)
        # The states are one half of conjugate pairs.
        taps.append(2 * response.real)
        state = decay * state
    actual = layer.kernel(9)
    expected = torch.stack(taps, -1)
    assert_equal_double(actual, expected)


@torch.no_grad()
def test_h3_reads_a_matrix_per_head():
    layer = mixer(6, 2, 4, 9)
    u = torch.randn(3, 9, 6).double()
    k = layer.key(u)
    k = by_fft(k, layer.shift) + layer.shift_skip * k
    parts = [layer.query(u), k, layer.value(u)]
    chunks = [part.chunk(3, dim=-1) for part in parts]
    queries, keys, values = chunks
    kernel = layer.kernel(9)
    heads = []
    for head in range(3):
        matrices = torch.einsum("bti,btj->btij", keys[head], values[head])
        # A convolution over time of each entry of the matrices.
        rows = layer.skip[head] * matrices
        for lag in range(9):
            earlier = matrices[:, : 9 - lag]
            rows[:, lag:] += kernel[head, lag] * earlier
        read = torch.einsum("bti,btij->btj", queries[head], rows)
        heads.append(read)
    expected = layer.output(torch.cat(heads, -1))
    assert_equal_double(layer(u), expected)


@pytest.fixture
def base_conv():
    model = small("base_conv", layers=4, width=6).double()
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn_like(parameter)
            parameter.add_(0.1 * drawn)
    return model


@pytest.fixture
def u(base_conv):
    length = base_conv.task.length - 1
    return torch.randn(3, length, 6).double()


def test_base_conv_has_short_and_long_convolutions_in_turn(base_conv):
    long = [hasattr(mixer, "taps") for mixer in base_conv.mixers]
    assert long == [False, True] * 2


@torch.no_grad()
def test_base_conv_gates_short_convolutions(base_conv, u):
    mixer = base_conv.mixers[0]
    short = mixer.short
    padded = pad(u.mT, (2, 0))
    y = conv1d(padded, short.weight, short.bias, groups=6).mT
    expected = u + y * mixer.map(u)
    assert_equal_double(mixer(u), expected)


@torch.no_grad()
def test_base_conv_gates_long_convolutions(base_conv, u):
    long = base_conv.mixers[1]
    length = base_conv.task.length
    j = torch.arange(length - 1).double()
    # A positional encoding of one frequency, far below one turn.
    angle = 1e-4 * 2 * math.pi * j / length
    share = j / (length - 1)
    parts = [share, angle.cos(), -angle.sin()]
    place = torch.stack(parts, -1)
    hidden = long.hidden(place).relu()
    kernel = long.taps(hidden).mT
    y = u + by_fft(u, kernel)
    expected = u + y * long.map(u)
    assert_equal_double(long(u), expected)
