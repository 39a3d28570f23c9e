"""The vanilla RNN: the linear network, gradients and the initial spectrum (S3)."""

import pytest
import torch
from torch import nn

from lmzoo.cells.rnn import FUNCTIONS, Activation, spectral_radius
from tests.cells.support import inputs, make, outputs
from tests.laws.support import assert_close
from tests.tiny import FINE

DERIVATIVES = {
    Activation.TANH: lambda h: 1 - h**2,
    Activation.SIGMOID: lambda h: h * (1 - h),
    Activation.RELU: lambda h: (h > 0).to(h.dtype),
    Activation.IDENTITY: torch.ones_like,
}
"""The derivative of each activation, as a function of its value."""


def test_a_linear_network_is_a_sum_over_past_inputs() -> None:
    cell = make("rnn", activation="identity", length=6)
    w, (x, start) = cell.w, inputs(cell)
    bias = w.bias_ih + w.bias_hh
    power = torch.linalg.matrix_power
    expected = start @ power(w.weight_hh, 6).T + sum(
        (x[:, i] @ w.weight_ih.T + bias) @ power(w.weight_hh, 5 - i).T for i in range(6)
    )
    assert_close(cell.scan(x, start)[:, -1], expected, FINE, "h_T")


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


def test_activations_are_different_functions() -> None:
    assert set(FUNCTIONS) == set(Activation)
    results = [outputs(make("rnn", activation=activation)) for activation in Activation]
    assert all(not a.allclose(b) for k, a in enumerate(results) for b in results[:k])


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


def gradient_factor(matrix: torch.Tensor, steps: int) -> torch.Tensor:
    """Return ‖∂h_T/∂h_0‖^(1/T) of the linear network with this W_hh."""
    cell = make("rnn", width=len(matrix), activation="identity", length=steps)
    with torch.no_grad():
        cell.w.weight_hh.copy_(matrix)
    x, start = inputs(cell, count=1)
    jacobian = torch.autograd.functional.jacobian(lambda s: cell.scan(x, s)[:, -1], start)
    return torch.linalg.matrix_norm(jacobian[0, :, 0], ord=2) ** (1 / steps)


def test_gradients_of_a_linear_network_do_not_change_geometrically() -> None:
    matrix = make("rnn", width=8, spectral=True).w.weight_hh.detach()
    assert abs(gradient_factor(matrix, 200) - 1) < 0.02
    assert abs(gradient_factor(0.8 * matrix, 200) - 0.8) < 0.02
    orthogonal = torch.linalg.qr(matrix)[0]
    for steps in (1, 5, 50):
        assert abs(gradient_factor(orthogonal, steps) - 1) < 1e-9
