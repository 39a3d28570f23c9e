"""The compiled way to the sphere is the plain formula, in values and in every derivative."""

from math import inf, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, jacrev, vmap

from lmzoo.functional import sphere
from lmzoo.functional.sphere import LARGE, SHORTEST, onto_sphere, plain
from tests.laws.ask import same
from tests.tiny import FINE, quick

RADIUS = 3.0


@pytest.fixture(autouse=True, scope="module")
def _compiled_however_small() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sphere, "LARGE", 0)
        yield


def vectors(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def solved(way, x: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors, and the gradient of a weighted sum of them."""
    x = x.clone().requires_grad_()
    y = way(x, RADIUS)
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    return y.detach(), torch.autograd.grad((y * weights).sum(), x)[0]


def agree(x: Tensor, tolerance: float = FINE) -> None:
    for mine, theirs, what in zip(solved(onto_sphere, x), solved(plain, x), "yg", strict=True):
        same(mine, theirs, tolerance, what)


@quick
@given(st.integers(0, 9), st.integers(1, 40), st.integers(0, 99))
def test_values_and_gradients_are_the_plain_ones(count: int, width: int, seed: int) -> None:
    x = vectors(count, width, seed=seed) * 10.0 ** (seed % 7 - 3)
    agree(x, FINE * 1e4)
    agree(x.float(), 2e-2 if count else FINE)


def test_any_axes_in_any_order_of_memory() -> None:
    for x in (vectors(5), vectors(4, 3, 2, 5).transpose(0, 2), vectors(4, 5).expand(2, 4, 5)):
        agree(x)
    assert onto_sphere(vectors(4, 3, 5).mT, RADIUS).shape == (4, 5, 3)


@pytest.mark.parametrize("length", [0.0, SHORTEST / 3, SHORTEST * 3])
def test_what_has_next_to_no_length(length: float) -> None:
    x = vectors(3, 4)
    x[1] *= length / x[1].norm()
    agree(x, 1e-9 / SHORTEST)
    y, gradient = solved(onto_sphere, x)
    expected, slope = solved(plain, x)
    same(y, expected, FINE, "y")
    same(gradient[1] * SHORTEST, slope[1] * SHORTEST, FINE, "gradient of the short one")
    again = x.clone().requires_grad_()
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    total = (onto_sphere(again, RADIUS) * weights).sum()
    (differentiable,) = torch.autograd.grad(total, again, create_graph=True)
    same(differentiable[1] * SHORTEST, slope[1] * SHORTEST, FINE, "by the way of derivatives")


def test_what_is_no_number_stays_its_own_vectors_affair() -> None:
    x = vectors(3, 4)
    x[0, 1], x[2, 3] = nan, inf
    y, gradient = solved(onto_sphere, x)
    for found in (y, gradient):
        assert found[0].isnan().all()
        assert not found[2].isfinite().all()
        assert found[1].isfinite().all()


def test_derivatives_of_any_order() -> None:
    x = vectors(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: onto_sphere(x, RADIUS), x)
    assert torch.autograd.gradgradcheck(lambda x: onto_sphere(x, RADIUS), x)

    def bent(way):
        return jacrev(jacrev(lambda x: way(x, RADIUS).pow(3).sum()))

    same(bent(onto_sphere)(x.detach()), bent(plain)(x.detach()), FINE, "Hessian")


def test_maps_and_maps_of_gradients() -> None:
    x = vectors(2, 3, 4, 5)
    expected = plain(x, RADIUS)
    for axis in range(3):
        mapped = vmap(lambda x: onto_sphere(x, RADIUS), axis, axis)(x)
        same(mapped, expected, FINE, f"mapped over axis {axis}")
    twice = vmap(vmap(lambda x: onto_sphere(x, RADIUS)), 1, 1)(x)
    same(twice, expected, FINE, "mapped twice")

    def slope(way):
        return vmap(grad(lambda x: way(x, RADIUS).pow(3).sum()), 2, 1)(x)

    same(slope(onto_sphere), slope(plain), FINE, "gradients of members")


def test_a_gradient_through_a_map_of_members() -> None:
    """As fused members have it: the map inside, one backward pass outside."""

    def through(way):
        x = vectors(2, 3, 4).requires_grad_()
        vmap(lambda x: way(x, RADIUS), 1)(x).pow(3).sum().backward()
        return x.grad

    same(through(onto_sphere), through(plain), FINE, "gradient")


def test_many_upstreams_at_once() -> None:
    x, upstreams = vectors(3, 4), vectors(3, 5, 4, seed=1)

    def back(way):
        given = x.clone().requires_grad_()
        y = way(given, RADIUS)
        return vmap(lambda g: torch.autograd.grad(y, given, g, retain_graph=True)[0], 1)(upstreams)

    same(back(onto_sphere), back(plain), FINE, "gradients")


def test_few_vectors_take_the_plain_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sphere, "LARGE", LARGE)
    few = vectors(2, LARGE // 2 - 1).requires_grad_()
    many = vectors(2, LARGE // 2).requires_grad_()
    names = [onto_sphere(x, RADIUS).grad_fn.name() for x in (few, many)]
    assert ["_Onto" in name for name in names] == [False, True]


@pytest.mark.parametrize("axes", [(3, 5), (2, 3, 5), (1, 2, 1, 3, 5)])
def test_what_lies_time_first_is_read_and_answered_so(axes: tuple[int, ...]) -> None:
    """A recurrence writes it so, and reads its gradient so."""
    written = vectors(4, *axes)
    x = written.movedim(0, -2).requires_grad_()
    y = onto_sphere(x, RADIUS)
    assert y.is_contiguous()
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    (found,) = torch.autograd.grad((y * weights).sum(), x)
    assert found.movedim(-2, 0).is_contiguous()
    agree(written.movedim(0, -2))
    upstreams = vectors(3, *y.shape, seed=1)
    back = [torch.autograd.grad(onto_sphere(x, RADIUS), x, g)[0] for g in upstreams]
    y = onto_sphere(x, RADIUS)
    mapped = vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(upstreams)
    same(mapped, torch.stack(back), FINE, "many upstreams at once")
