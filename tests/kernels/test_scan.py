"""`torch.func` over scans: pack members run as one equal each member run alone."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.utils import _pytree as pytree

from lmzoo.cells.base import CELLS, Cell
from lmzoo.kernels.cpu.mgu import MGUScan
from lmzoo.kernels.scan import scan
from tests.kernels.variants import EXAMPLES, build, data
from tests.laws.support import assert_close
from tests.tiny import FINE

MEMBERS = 3


@pytest.fixture(params=EXAMPLES, ids=str)
def cells(request: pytest.FixtureRequest) -> list[Cell]:
    config = CELLS.parse(dict(request.param))
    return [build(config, torch.float64, seed=seed) for seed in range(MEMBERS)]


def stacked(cells: list[Cell]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return the stacked weights, inputs and starts of all members."""
    weights = {name: w.detach() for name, w in stack_module_state(list(cells))[0].items()}
    x, start = data(cells[0], count=2 * len(cells))
    return weights, x.unflatten(0, (len(cells), 2)), start.unflatten(0, (len(cells), 2))


class Scan(torch.nn.Module):
    """A module whose forward is a cell's scan, for `functional_call`."""

    def __init__(self, cell: Cell, *, naive: bool) -> None:
        super().__init__()
        self.cell, self.naive = cell, naive

    def forward(self, x: Tensor, start: Tensor) -> Tensor:
        return (self.cell.naive_scan if self.naive else self.cell.scan)(x, start)


def outputs(
    cell: Cell, weights: dict[str, Tensor], x: Tensor, start: Tensor, *, naive: bool
) -> Any:
    named = {f"cell.{name}": weight for name, weight in weights.items()}
    return functional_call(Scan(cell, naive=naive), named, (x, start))


def gradients(cell: Cell, *, naive: bool = False) -> Any:
    """Return a function (weights, x, start) -> gradients of the outputs' sum of squares."""

    def loss(weights: dict[str, Tensor], x: Tensor, start: Tensor) -> Tensor:
        return outputs(cell, weights, x, start, naive=naive).square().sum()

    return grad(loss, argnums=(0, 1, 2))


def naive_gradients(cell: Cell, weights: Any, x: Tensor, start: Tensor) -> Any:
    """Return the naive gradients of every member, stacked."""
    compute = gradients(cell, naive=True)
    found = [compute({k: w[i] for k, w in weights.items()}, x[i], start[i]) for i in range(len(x))]
    return pytree.tree_map(lambda *parts: torch.stack(parts), *found)


def agree(found: Any, expected: Any) -> None:
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    for i, (actual, reference) in enumerate(pairs):
        assert_close(actual, reference, FINE, f"gradient {i}")


def test_mapped_gradients_equal_separate_gradients(cells: list[Cell]) -> None:
    weights, x, start = stacked(cells)
    found = vmap(gradients(cells[0]))(weights, x, start)
    agree(found, naive_gradients(cells[0], weights, x, start))


def test_a_gradient_through_a_map_equals_separate_gradients(cells: list[Cell]) -> None:
    weights, x, start = stacked(cells)

    def total(weights: dict[str, Tensor], x: Tensor, start: Tensor) -> Tensor:
        def member(w: dict[str, Tensor], a: Tensor, s: Tensor) -> Tensor:
            return outputs(cells[0], w, a, s, naive=False)

        return vmap(member)(weights, x, start).square().sum()

    found = grad(total, argnums=(0, 1, 2))(weights, x, start)
    agree(found, naive_gradients(cells[0], weights, x, start))


def test_nested_maps_equal_separate_gradients(cells: list[Cell]) -> None:
    weights, x, start = stacked(cells)
    inputs = torch.stack([x, 2 * x])
    found = vmap(lambda a: vmap(gradients(cells[0]))(weights, a, start))(inputs)
    both = [naive_gradients(cells[0], weights, a, start) for a in inputs]
    agree(found, pytree.tree_map(lambda *parts: torch.stack(parts), *both))


def test_the_jacobian_equals_the_naive_jacobian() -> None:
    cell = build(CELLS.parse("mgu"), torch.float64)
    x, start = data(cell)
    assert_close(
        jacrev(cell.fast_scan)(x, start), jacrev(cell.naive_scan)(x, start), FINE, "Jacobian"
    )


def test_an_explicit_member_axis_comes_before_the_batch() -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, start = random(4, MEMBERS, 2, 3), random(MEMBERS, 2, 3)  # T P B E, P B H
    xf, hf, xh, hh = random(4, MEMBERS, 3, 3).unbind(0)
    bf, bh = random(2, MEMBERS, 3).unbind(0)
    weights = (xf, hf, bf, xh, hh, bh)
    found = scan(MGUScan(), x, start, weights)
    for p in range(MEMBERS):
        alone = scan(MGUScan(), x[:, p], start[p], [w[p] for w in weights])
        assert_close(found[:, p], alone, FINE, f"outputs of member {p}")


def test_a_second_derivative_raises() -> None:
    cell = build(CELLS.parse("mgu"), torch.float64)
    x, start = data(cell)
    x.requires_grad_()
    (first,) = torch.autograd.grad(cell.scan(x, start).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="naive_scan"):
        first.sum().backward()
