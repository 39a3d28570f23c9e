"""Convolutional models: the gated one, H3 and BaseConv equal their definitions."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.models.convolution import Cut, H3Mixer
from tests.models.equivalence import small
from tests.tiny import assert_equal_double, every_sequence

GATED = "gated_convolution"
VARIANTS: list[dict[str, Any]] = [
    {},
    {"activation": "tanh"},
    {"cuts": [Cut.SQUASH]},
    *({"cuts": [Cut.GATE], "activation": f} for f in ("identity", "tanh", "relu")),
    {"cuts": [Cut.VALUE_PAST]},
    {"cuts": [Cut.GATE_PAST], "window": 3},
    {"cuts": [Cut.RESIDUAL]},
]


def kernel(convolution: torch.nn.Module, width: int, window: int) -> Tensor:
    """Return the weights (E, E, k) that torch's convolution needs: the oldest position first."""
    earlier = [torch.zeros(width, width).double()] * (window - 1)
    if convolution.past is not None:
        earlier = list(convolution.past.weight.split(width, dim=1))
    return torch.stack([convolution.now.weight, *earlier][::-1], dim=2)


def reference(model: torch.nn.Module, tokens: Tensor) -> Tensor:
    """Return the features, computed with `conv1d` on channels first."""
    c = model.config
    functions = {"identity": lambda a: a, "tanh": torch.tanh, "relu": torch.relu}
    x = model.embedding(tokens).mT
    for layer in model.layers:
        padded = pad(x, (c.window - 1, 0))
        value = conv1d(padded, kernel(layer.value, c.width, c.window), layer.value.now.bias)
        y = functions[c.activation](value)
        if Cut.GATE not in c.cuts:
            gate = conv1d(padded, kernel(layer.gate, c.width, c.window), layer.gate.now.bias)
            if Cut.SQUASH in c.cuts:
                y = y * gate
            else:
                y = y * gate.sigmoid()
        if Cut.RESIDUAL in c.cuts:
            x = y
        else:
            x = x + y
    return x.mT


@torch.no_grad()
@pytest.mark.parametrize("fields", VARIANTS, ids=str)
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
    product = torch.fft.rfft(x.mT, 2 * t) * torch.fft.rfft(kernel[:, :t], 2 * t)
    return torch.fft.irfft(product, 2 * t)[..., :t].mT


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
    state = torch.zeros_like(a)
    taps = []
    for j in range(9):  # the response of the bilinear rule to an impulse
        state = (1 + step * a / 2) / (1 - step * a / 2) * state
        state = state + step / (1 - step * a / 2) * (j == 0)
        taps.append(2 * (c * state).sum(-1).real)
    assert_equal_double(layer.kernel(9), torch.stack(taps, -1))


@torch.no_grad()
def test_h3_reads_a_matrix_per_head():
    layer = mixer(6, 2, 4, 9)
    u = torch.randn(3, 9, 6).double()
    q = layer.query(u)
    k = layer.key(u)
    v = layer.value(u)
    k = by_fft(k, layer.shift) + layer.shift_skip * k
    kernel = layer.kernel(9)
    heads = []
    for head in range(3):
        own = slice(2 * head, 2 * head + 2)
        matrices = torch.einsum("bti,btj->btij", k[..., own], v[..., own])
        rows = torch.zeros_like(matrices)
        for t in range(9):
            for j in range(t + 1):
                rows[:, t] += kernel[head, j] * matrices[:, t - j]
        rows += layer.skip[head] * matrices
        heads.append(torch.einsum("bti,btij->btj", q[..., own], rows))
    assert_equal_double(layer(u), layer.output(torch.cat(heads, -1)))


@torch.no_grad()
def test_base_conv_gates_short_and_long_convolutions():
    model: Any = small("base_conv", layers=4, width=6).double()
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    short, long, *others = model.mixers
    assert [hasattr(mixer, "taps") for mixer in others] == [False, True]
    t = model.task.length - 1
    u = torch.randn(3, t, 6).double()
    padded = torch.cat([torch.zeros(3, 2, 6).double(), u], dim=1)
    weight = short.short.weight[:, 0]  # the oldest position first
    y = sum(weight[:, i] * padded[:, i : i + t] for i in range(3)) + short.short.bias
    assert_equal_double(short(u), u + y * short.map(u))
    j = torch.arange(t).double()
    angle = 1e-4 * 2 * math.pi * j / model.task.length
    place = torch.stack([j / (model.task.length - 1), angle.cos(), -angle.sin()], -1)
    kernel = long.taps(long.hidden(place).relu()).mT
    y = u + by_fft(u, kernel)
    assert_equal_double(long(u), u + y * long.map(u))


def test_a_head_of_h3_divides_the_width():
    with pytest.raises(UserError, match="size=4 must divide width=6"):
        small("h3", width=6, size=4)
