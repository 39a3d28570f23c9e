"""The vanilla RNN: the linear network, gradients and the initial spectrum (S3)."""

import pytest
import torch
from torch import nn

from lmzoo.cells.rnn import Activation, spectral_radius
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make
from tests.tiny import FINE

DERIVATIVES = {
    Activation.TANH: lambda h: 1 - h**2,
    Activation.SIGMOID: lambda h: h * (1 - h),
    Activation.RELU: lambda h: (h > 0).to(h.dtype),
    Activation.IDENTITY: torch.ones_like,
}
"""The derivative of each activation, as a function of its value."""


def test_relu_equals_torchs_layer() -> None:
    cell = make("rnn", activation="relu")
    theirs = nn.RNN(3, 3, nonlinearity="relu", batch_first=True).double()
    with torch.no_grad():
        for name, weight in cell.w.named_parameters():
            theirs.get_parameter(f"{name}_l0").copy_(weight)
    x, start = inputs(cell)
    assert_close(cell.scan(x, start), theirs(x, start[None])[0], FINE, "outputs")


@pytest.mark.parametrize("activation", Activation)
def test_explicit_backpropagation_equals_autograd(activation: Activation) -> None:
    """δ_{t-1} = W_hhᵀ (f' ⊙ δ_t) + ∂L/∂h_{t-1}."""
    cell = make("rnn", activation=activation, length=5)
    w, (x, start) = cell.w, inputs(cell)
    start.requires_grad_()
    h = cell.scan(x, start)
    weight = torch.randn(h.shape, dtype=h.dtype, generator=torch.Generator().manual_seed(3))
    loss = (weight * h**2).sum()
    expected = torch.autograd.grad(loss, [start, w.weight_hh, w.weight_ih, w.bias_ih])
    before = torch.cat([start[:, None], h[:, :-1]], dim=1)
    delta = torch.zeros_like(start)
    to_hh, to_ih, to_bias = (torch.zeros_like(g) for g in expected[1:])
    for t in reversed(range(5)):
        delta = delta + 2 * weight[:, t] * h[:, t]
        inner = DERIVATIVES[activation](h[:, t]) * delta
        to_hh += inner.T @ before[:, t]
        to_ih += inner.T @ x[:, t]
        to_bias += inner.sum(0)
        delta = inner @ w.weight_hh
    for ours, theirs in zip((delta, to_hh, to_ih, to_bias), expected, strict=True):
        assert_close(ours.detach(), theirs, FINE, "gradient")


@pytest.mark.parametrize("width", [2, 7, 40])
def test_spectral_scales_w_hh_to_radius_one(width: int) -> None:
    cell, plain = make("rnn", width=width, spectral=True), make("rnn", width=width)
    radius = spectral_radius(cell.w.weight_hh.detach())
    assert abs(radius - 1) < 1e-5
    assert abs(spectral_radius(plain.w.weight_hh.detach()) - 1) > 1e-2
    ratio = cell.w.weight_hh / plain.w.weight_hh
    assert_close(ratio, ratio[:1, :1].expand_as(ratio), 1e-5, "scale")
    for name in ("weight_ih", "bias_ih", "bias_hh"):
        assert cell.w.get_parameter(name).equal(plain.w.get_parameter(name))
