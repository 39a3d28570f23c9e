"""The vanilla RNN: its linear case, its gradient by hand, its spectrum (S3)."""

import pytest
import torch
from torch import nn

from lmzoo.cells.rnn import FUNCTIONS, Activation, spectral_radius
from tests.cells.run import inputs, make, outputs
from tests.laws.support import assert_close
from tests.tiny import FINE

SLOPES = {
    Activation.TANH: lambda h: 1 - h**2,
    Activation.SIGMOID: lambda h: h * (1 - h),
    Activation.RELU: lambda h: (h > 0).to(h.dtype),
    Activation.IDENTITY: torch.ones_like,
}
"""The derivative of each activation, as a function of its value."""


def test_the_linear_network_is_a_sum_over_the_past() -> None:
    cell = make("rnn", activation="identity", length=6)
    w, (x, start) = cell.w, inputs(cell)
    bias = w.bias_ih + w.bias_hh
    power = torch.linalg.matrix_power
    expected = start @ power(w.weight_hh, 6).T + sum(
        (x[:, i] @ w.weight_ih.T + bias) @ power(w.weight_hh, 5 - i).T for i in range(6)
    )
    assert_close(cell.scan(x, start)[:, -1], expected, FINE, "h_T")


def test_relu_is_the_librarys() -> None:
    cell = make("rnn", activation="relu")
    theirs = nn.RNN(3, 3, nonlinearity="relu", batch_first=True).double()
    with torch.no_grad():
        for name, weight in cell.w.named_parameters():
            theirs.get_parameter(f"{name}_l0").copy_(weight)
    x, start = inputs(cell)
    assert_close(cell.scan(x, start), theirs(x, start[None])[0], FINE, "outputs")


@pytest.mark.parametrize("activation", Activation)
def test_back_propagation_by_hand_is_autograd(activation: Activation) -> None:
    """δ_{t-1} = W_hhᵀ (f' ⊙ δ_t) + ∂L/∂h_{t-1}."""
    cell = make("rnn", activation=activation, length=5)
    w, (x, start) = cell.w, inputs(cell)
    start.requires_grad_()
    h = cell.scan(x, start)
    weight = torch.randn(h.shape, dtype=h.dtype, generator=torch.Generator().manual_seed(3))
    loss = (weight * h**2).sum()
    wanted = torch.autograd.grad(loss, [start, w.weight_hh, w.weight_ih, w.bias_ih])
    before = torch.cat([start[:, None], h[:, :-1]], dim=1)
    delta = torch.zeros_like(start)
    to_hh, to_ih, to_bias = (torch.zeros_like(g) for g in wanted[1:])
    for t in reversed(range(5)):
        delta = delta + 2 * weight[:, t] * h[:, t]
        through = SLOPES[activation](h[:, t]) * delta
        to_hh += through.T @ before[:, t]
        to_ih += through.T @ x[:, t]
        to_bias += through.sum(0)
        delta = through @ w.weight_hh
    for found, expected in zip((delta, to_hh, to_ih, to_bias), wanted, strict=True):
        assert_close(found.detach(), expected, FINE, "gradient")


def test_every_activation_is_another_function() -> None:
    assert set(FUNCTIONS) == set(Activation)
    found = [outputs(make("rnn", activation=activation)) for activation in Activation]
    assert all(not one.allclose(two) for k, one in enumerate(found) for two in found[:k])


@pytest.mark.parametrize("width", [2, 7, 40])
def test_the_spectral_radius_is_one_and_only_the_scale_changes(width: int) -> None:
    cell, plain = make("rnn", width=width, spectral=True), make("rnn", width=width)
    radius = spectral_radius(cell.w.weight_hh.detach())
    assert abs(radius - 1) < 1e-5
    assert abs(spectral_radius(plain.w.weight_hh.detach()) - 1) > 1e-2
    ratio = cell.w.weight_hh / plain.w.weight_hh
    assert_close(ratio, ratio[:1, :1].expand_as(ratio), 1e-5, "scale")
    for name in ("weight_ih", "bias_ih", "bias_hh"):
        assert cell.w.get_parameter(name).equal(plain.w.get_parameter(name))


def shares(matrix: torch.Tensor, steps: int) -> torch.Tensor:
    """‖∂h_T/∂h_0‖^(1/T) of the linear network with this W_hh."""
    cell = make("rnn", width=len(matrix), activation="identity", length=steps)
    with torch.no_grad():
        cell.w.weight_hh.copy_(matrix)
    x, start = inputs(cell, count=1)
    jacobian = torch.autograd.functional.jacobian(lambda s: cell.scan(x, s)[:, -1], start)
    return torch.linalg.matrix_norm(jacobian[0, :, 0], ord=2) ** (1 / steps)


def test_gradients_through_a_linear_network_neither_grow_nor_vanish_geometrically() -> None:
    matrix = make("rnn", width=8, spectral=True).w.weight_hh.detach()
    assert abs(shares(matrix, 200) - 1) < 0.02
    assert abs(shares(0.8 * matrix, 200) - 0.8) < 0.02
    orthogonal = torch.linalg.qr(matrix)[0]
    for steps in (1, 5, 50):
        assert abs(shares(orthogonal, steps) - 1) < 1e-9
