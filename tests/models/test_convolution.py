"""Convolutional models: the gated one, H3 and BaseConv equal their definitions."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from lmzoo import zoo
from lmzoo.models.convolution import Cut, H3Mixer
from tests.cases import cases
from tests.models.equivalence import small
from tests.tiny import assert_equal_double, every_sequence

GATED = "gated_convolution"
FUNCTIONS = {"identity": nn.Identity(), "tanh": torch.tanh, "relu": torch.relu}


def convolved(convolution: nn.Module, x: Tensor, width: int, window: int) -> Tensor:
    """Return torch's causal convolution of x (B, E, t), whose oldest weight is the first."""
    earlier = [torch.zeros(width, width).double()] * (window - 1)
    if convolution.past is not None:
        earlier = list(convolution.past.weight.split(width, dim=1))
    taps = [convolution.now.weight] + earlier
    weight = torch.stack(taps, dim=2).flip(2)
    padded = pad(x, (window - 1, 0))
    return conv1d(padded, weight, convolution.now.bias)


def reference(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return the features, computed with `conv1d` on channels first."""
    c = model.config
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
    assert_equal_double(model.features(tokens), reference(model, tokens))


def test_cuts_of_a_gate_that_is_cut_do_not_count():
    whole = zoo.config(GATED, cuts=["gate", "squash", "gate_past"])
    assert whole == zoo.config(GATED, cuts=[0])


def by_fft(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the causal convolution of (B, t, E) with (E, T)."""
    t = x.shape[1]
    # Padded to 2t, so that the end does not wrap around to the beginning.
    of_inputs = torch.fft.rfft(x.mT, 2 * t)
    of_kernel = torch.fft.rfft(kernel[:, :t], 2 * t)
    both = torch.fft.irfft(of_inputs * of_kernel, 2 * t)
    return both[..., :t].mT


def mixer(width: int, size: int, states: int, length: int) -> H3Mixer:
    """Return a layer of H3 whose decays and frequencies differ from the initial ones."""
    layer = H3Mixer(width, size, states, length).double()
    for parameter in (layer.log_decay, layer.frequency):
        parameter.add_(torch.randn_like(parameter))
    return layer


@torch.no_grad()
def test_the_kernel_of_h3_is_that_of_its_state_space():
    layer = mixer(6, 2, 4, 9)
    step = layer.log_step.exp()[:, None]
    a = torch.complex(-layer.log_decay.exp(), layer.frequency)
    c = torch.view_as_complex(layer.read)
    # The response of the bilinear rule to an impulse.
    divisor = 1 - step * a / 2
    decay = (1 + step * a / 2) / divisor
    state = step / divisor
    taps = []
    for _ in range(9):
        taps.append(2 * (c * state).sum(-1).real)
        state = decay * state
    assert_equal_double(layer.kernel(9), torch.stack(taps, -1))


@torch.no_grad()
def test_h3_reads_a_matrix_per_head():
    layer = mixer(6, 2, 4, 9)
    u = torch.randn(3, 9, 6).double()
    k = layer.key(u)
    k = by_fft(k, layer.shift) + layer.shift_skip * k
    queries = layer.query(u).chunk(3, dim=-1)
    keys = k.chunk(3, dim=-1)
    values = layer.value(u).chunk(3, dim=-1)
    kernel = layer.kernel(9)
    heads = []
    for head in range(3):
        matrices = torch.einsum("bti,btj->btij", keys[head], values[head])
        rows = layer.skip[head] * matrices
        for lag in range(9):
            rows[:, lag:] += kernel[head, lag] * matrices[:, : 9 - lag]
        heads.append(torch.einsum("bti,btij->btj", queries[head], rows))
    assert_equal_double(layer(u), layer.output(torch.cat(heads, -1)))


@pytest.fixture
def base_conv():
    model = small("base_conv", layers=4, width=6).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture
def u(base_conv) -> Tensor:
    return torch.randn(3, base_conv.task.length - 1, 6).double()


def test_base_conv_has_short_and_long_convolutions_in_turn(base_conv):
    assert [hasattr(mixer, "taps") for mixer in base_conv.mixers] == [False, True, False, True]


@torch.no_grad()
def test_base_conv_gates_short_convolutions(base_conv, u):
    short = base_conv.mixers[0]
    padded = pad(u.mT, (2, 0))
    y = conv1d(padded, short.short.weight, short.short.bias, groups=6).mT
    assert_equal_double(short(u), u + y * short.map(u))


@torch.no_grad()
def test_base_conv_gates_long_convolutions(base_conv, u):
    long = base_conv.mixers[1]
    length = base_conv.task.length
    j = torch.arange(u.shape[1]).double()
    angle = 1e-4 * 2 * math.pi * j / length
    place = torch.stack([j / (length - 1), angle.cos(), -angle.sin()], -1)
    kernel = long.taps(long.hidden(place).relu()).mT
    y = u + by_fft(u, kernel)
    assert_equal_double(long(u), u + y * long.map(u))
