"""The compiled projection to the sphere equals the naive formula, with all derivatives."""

from math import inf, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from lmzoo.functional import sphere
from lmzoo.functional.sphere import MIN_LENGTH, MIN_SIZE, naive_project_to_sphere, project_to_sphere
from tests.laws.support import assert_close
from tests.tiny import FINE, quick

RADIUS = 3.0


@pytest.fixture(autouse=True, scope="module")
def _use_the_kernel_for_any_size() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sphere, "MIN_SIZE", 0)
        yield


def vectors(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def results(project, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors, and the gradient of a weighted sum of them."""
    x = x.clone().requires_grad_()
    y = project(x, RADIUS)
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    return y.detach(), torch.autograd.grad((y * weights).sum(), x)[0]


def agree(x: Tensor, tolerance: float = FINE) -> None:
    found, expected = results(project_to_sphere, x), results(naive_project_to_sphere, x)
    for actual, naive, name in zip(found, expected, ("y", "gradient"), strict=True):
        assert_close(actual, naive, tolerance, name)


@quick
@given(st.integers(0, 9), st.integers(1, 40), st.integers(0, 99))
def test_values_and_gradients_equal_the_naive_formula(count: int, width: int, seed: int) -> None:
    x = vectors(count, width, seed=seed) * 10.0 ** (seed % 7 - 3)
    agree(x, FINE * 1e4)
    agree(x.float(), 2e-2 if count else FINE)


def test_any_number_of_axes_in_any_memory_order() -> None:
    for x in (vectors(5), vectors(4, 3, 2, 5).transpose(0, 2), vectors(4, 5).expand(2, 4, 5)):
        agree(x)
    assert project_to_sphere(vectors(4, 3, 5).mT, RADIUS).shape == (4, 5, 3)


@pytest.mark.parametrize("length", [0.0, MIN_LENGTH / 3, MIN_LENGTH * 3])
def test_vectors_of_almost_zero_length(length: float) -> None:
    x = vectors(3, 4)
    x[1] *= length / x[1].norm()
    agree(x, 1e-9 / MIN_LENGTH)
    y, gradient = results(project_to_sphere, x)
    expected, naive_gradient = results(naive_project_to_sphere, x)
    assert_close(y, expected, FINE, "y")
    short_gradient = naive_gradient[1] * MIN_LENGTH
    assert_close(gradient[1] * MIN_LENGTH, short_gradient, FINE, "gradient")


def test_nan_and_infinity_affect_only_their_own_vector() -> None:
    x = vectors(3, 4)
    x[0, 1], x[2, 3] = nan, inf
    y, gradient = results(project_to_sphere, x)
    for found in (y, gradient):
        assert found[0].isnan().all()
        assert not found[2].isfinite().all()
        assert found[1].isfinite().all()


def test_vmap_and_vmap_of_gradients() -> None:
    x = vectors(2, 3, 4, 5)
    expected = naive_project_to_sphere(x, RADIUS)
    for axis in range(3):
        mapped = vmap(lambda x: project_to_sphere(x, RADIUS), axis, axis)(x)
        assert_close(mapped, expected, FINE, f"mapped over axis {axis}")
    twice = vmap(vmap(lambda x: project_to_sphere(x, RADIUS)), 1, 1)(x)
    assert_close(twice, expected, FINE, "mapped twice")

    def gradients(project):
        return vmap(grad(lambda x: project(x, RADIUS).pow(3).sum()), 2, 1)(x)

    found, expected = gradients(project_to_sphere), gradients(naive_project_to_sphere)
    assert_close(found, expected, FINE, "mapped gradients")


def test_backward_through_vmap() -> None:
    """As in packed training: the map inside, one backward pass outside."""

    def through(project):
        x = vectors(2, 3, 4).requires_grad_()
        vmap(lambda x: project(x, RADIUS), 1)(x).pow(3).sum().backward()
        return x.grad

    assert_close(through(project_to_sphere), through(naive_project_to_sphere), FINE, "gradient")


def test_vmap_over_upstream_gradients() -> None:
    x, upstreams = vectors(3, 4), vectors(3, 5, 4, seed=1)

    def backward(project):
        inputs = x.clone().requires_grad_()
        y = project(inputs, RADIUS)
        return vmap(lambda g: torch.autograd.grad(y, inputs, g, retain_graph=True)[0], 1)(upstreams)

    assert_close(backward(project_to_sphere), backward(naive_project_to_sphere), FINE, "gradients")


def test_small_inputs_use_the_naive_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sphere, "MIN_SIZE", MIN_SIZE)
    few = vectors(2, MIN_SIZE // 2 - 1).requires_grad_()
    many = vectors(2, MIN_SIZE // 2).requires_grad_()
    names = [project_to_sphere(x, RADIUS).grad_fn.name() for x in (few, many)]
    assert ["_Project" in name for name in names] == [False, True]


@pytest.mark.parametrize("axes", [(3, 5), (2, 3, 5), (1, 2, 1, 3, 5)])
def test_time_first_inputs_get_time_first_gradients(axes: tuple[int, ...]) -> None:
    """A recurrence writes its outputs and reads its gradients time first."""
    time_first = vectors(4, *axes)
    x = time_first.movedim(0, -2).requires_grad_()
    y = project_to_sphere(x, RADIUS)
    assert y.is_contiguous()
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    (found,) = torch.autograd.grad((y * weights).sum(), x)
    assert found.movedim(-2, 0).is_contiguous()
    agree(time_first.movedim(0, -2))
    upstreams = vectors(3, *y.shape, seed=1)
    expected = [torch.autograd.grad(project_to_sphere(x, RADIUS), x, g)[0] for g in upstreams]
    y = project_to_sphere(x, RADIUS)
    mapped = vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(upstreams)
    assert_close(mapped, torch.stack(expected), FINE, "mapped upstream gradients")
