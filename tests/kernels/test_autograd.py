"""Functions with a gradient by hand: every one is of the kind whose call is cheap."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from lmzoo import functional
from lmzoo.kernels.autograd import CustomFunction


def written() -> list[type[torch.autograd.Function]]:
    """All there are under `lmzoo/functional`."""
    for module in pkgutil.walk_packages(functional.__path__, functional.__name__ + "."):
        importlib.import_module(module.name)
    found = below(torch.autograd.Function)
    return [one for one in found if one.__module__.startswith(functional.__name__)]


def below(kind: type) -> Iterator[type]:
    for one in type.__subclasses__(kind):
        yield one
        yield from below(one)


def test_there_is_no_other_kind() -> None:
    found = written()
    assert len(found) >= 8
    assert [one for one in found if not issubclass(one, CustomFunction)] == []


class Scaled(CustomFunction):
    """(x, y, factor) -> (factor x y, how often its rule was asked for); x and y have one axis."""

    @staticmethod
    def forward(x: Tensor, y: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        return factor * x * y, x.new_zeros(())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[2]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        return upstream[0] * ctx.factor * y, upstream[0] * ctx.factor * x, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        *tensors, factor = given
        assert info.randomness == "error"
        x, y = (
            one.expand(info.batch_size, *one.shape) if dim is None else one.movedim(dim, 0)
            for one, dim in zip(tensors, in_dims, strict=False)
        )
        product, asked = Scaled.apply(x, y, factor)
        return (product, asked + 1), (0, None)


def _scaled(x: Tensor, y: Tensor) -> Tensor:
    product, asked = Scaled.apply(x, y, 3.0)
    return product + asked


X, Y = torch.arange(24.0).view(2, 3, 4) / 7, torch.linspace(-1, 1, 4)
MAPS: dict[str, Callable[[Any], Any]] = {
    "not at all": lambda way: way(X[0, 0], Y),
    "of members": lambda way: vmap(way, (1, None), 1)(X[0].mT, Y),
    "the other only": lambda way: vmap(way, (None, 0))(Y, X[0]),
    "twice": lambda way: vmap(vmap(way, (0, None)), (1, None))(X, Y),
    "neither, inside of a map": lambda way: vmap(lambda z: z + way(Y, Y))(X),
    "the inner map only": lambda way: vmap(lambda z: vmap(way, (0, None))(X[0], Y) + z[0, 0])(X),
    "gradients of members": lambda way: vmap(
        vmap(grad(lambda x, y: way(x, y).sum(), (0, 1)), (0, None)), (1, None)
    )(X, Y),
    "a gradient of members": lambda way: grad(lambda y: vmap(way, (0, None))(X[0], y).sum())(Y),
}


@pytest.mark.parametrize("how", MAPS)
def test_it_is_mapped_as_torch_maps(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = MAPS[how](_scaled)
    monkeypatch.delattr(CustomFunction, "apply")
    torch.testing.assert_close(found, MAPS[how](_scaled), rtol=0, atol=0)


def test_a_gradient_through_a_map() -> None:
    """As fused members have it: the map inside, one way back outside."""
    x, y = X[0].clone().requires_grad_(), Y.clone().requires_grad_()
    found = torch.autograd.grad(vmap(_scaled, (0, None))(x, y).square().sum(), (x, y))
    plain = ((3 * x * y + 1).square()).sum()
    for one, other in zip(found, torch.autograd.grad(plain, (x, y)), strict=True):
        torch.testing.assert_close(one, other)
