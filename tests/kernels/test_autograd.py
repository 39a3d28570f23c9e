"""Custom autograd functions: all use the base class whose calls under `vmap` are cheap."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from lmzoo import functional, kernels
from lmzoo.kernels.autograd import CustomFunction


def custom_functions() -> list[type[torch.autograd.Function]]:
    """Return all autograd functions of `lmzoo.functional` and `lmzoo.kernels`."""
    for package in (functional, kernels):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    packages = functional.__name__, kernels.__name__
    functions = subclasses(torch.autograd.Function)
    return [cls for cls in functions if cls.__module__.startswith(packages)]


def subclasses(cls: type) -> Iterator[type]:
    for subclass in type.__subclasses__(cls):
        yield subclass
        yield from subclasses(subclass)


def test_every_autograd_function_is_a_custom_function() -> None:
    functions = custom_functions()
    assert len(functions) >= 8
    assert [cls for cls in functions if not issubclass(cls, CustomFunction)] == []


class Scaled(CustomFunction):
    """(x, y, factor) -> (factor x y, number of `vmap` rules applied); x and y have one axis."""

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
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        *tensors, factor = args
        assert info.randomness == "error"
        x, y = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims, strict=False)
        )
        product, rules = Scaled.apply(x, y, factor)
        return (product, rules + 1), (0, None)


def _scaled(x: Tensor, y: Tensor) -> Tensor:
    product, rules = Scaled.apply(x, y, 3.0)
    return product + rules


X, Y = torch.arange(24.0).view(2, 3, 4) / 7, torch.linspace(-1, 1, 4)
MAPS: dict[str, Callable[[Any], Any]] = {
    "no map": lambda f: f(X[0, 0], Y),
    "the first argument": lambda f: vmap(f, (1, None), 1)(X[0].mT, Y),
    "the second argument": lambda f: vmap(f, (None, 0))(Y, X[0]),
    "nested maps": lambda f: vmap(vmap(f, (0, None)), (1, None))(X, Y),
    "no argument, inside of a map": lambda f: vmap(lambda z: z + f(Y, Y))(X),
    "the inner map only": lambda f: vmap(lambda z: vmap(f, (0, None))(X[0], Y) + z[0, 0])(X),
    "gradients inside of maps": lambda f: vmap(
        vmap(grad(lambda x, y: f(x, y).sum(), (0, 1)), (0, None)), (1, None)
    )(X, Y),
    "a gradient through a map": lambda f: grad(lambda y: vmap(f, (0, None))(X[0], y).sum())(Y),
}


@pytest.mark.parametrize("name", MAPS)
def test_vmap_equals_torchs_own_vmap(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = MAPS[name](_scaled)
    monkeypatch.delattr(CustomFunction, "apply")
    torch.testing.assert_close(found, MAPS[name](_scaled), rtol=0, atol=0)


def test_backward_through_a_map() -> None:
    """As in packed training: the map inside, one backward pass outside."""
    x, y = X[0].clone().requires_grad_(), Y.clone().requires_grad_()
    found = torch.autograd.grad(vmap(_scaled, (0, None))(x, y).square().sum(), (x, y))
    plain = ((3 * x * y + 1).square()).sum()
    for gradient, expected in zip(found, torch.autograd.grad(plain, (x, y)), strict=True):
        torch.testing.assert_close(gradient, expected)
