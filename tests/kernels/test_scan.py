"""Scans of vectors and of tokens: outputs and gradients, also of packs under `torch.func` maps."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils import _pytree as pytree

from lmzoo.cells.base import CELLS, Cell
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.laws.tiny import assert_close
from tests.kernels.variants import EXAMPLES, build, data, variants
from tests.kernels.variants import agree as scans_agree
from tests.tiny import FINE

VOCAB = 6
WIDTH = 5


def problem(cell: Cell, *members: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens (.., 3, 4), a table (.., V, E) with one unused row, and starts."""
    generator = torch.Generator().manual_seed(0)
    start = data(cell)[1].expand(*members, -1, -1)
    table = torch.randn(*members, VOCAB, WIDTH, generator=generator, dtype=start.dtype)
    tokens = torch.randint(VOCAB - 1, (*members, 3, 4), generator=generator)
    return tokens, table, start


@pytest.mark.parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_tokens_equal_vectors_for_every_variant(name):
    for config in variants(name):
        cell = build(config, torch.float64)
        tokens, table, start = problem(cell)
        scans_agree(cell, FINE, TokenInputs(tokens, table), start)


class Scan(torch.nn.Module):
    """A module whose forward is a cell's scan of tokens or vectors, or its naive scan."""

    def __init__(self, cell: Cell, form: str) -> None:
        super().__init__()
        self.cell = cell
        self.form = form

    def forward(self, tokens: Tensor, table: Tensor, start: Tensor) -> Tensor:
        inputs = TokenInputs(tokens, table)
        if self.form == "tokens":
            return self.cell.scan(inputs, start)
        scan = self.cell.scan
        if self.form == "naive":
            scan = self.cell.naive_scan
        return scan(inputs.vectors(), start)


def loss(cell: Cell, form: str) -> Any:
    """Return a function (weights, table, start, tokens) -> sum of cubed outputs."""
    module = Scan(cell, form)

    def compute(weights: dict[str, Tensor], table: Tensor, start: Tensor, tokens: Tensor) -> Tensor:
        named = {f"cell.{name}": weight for name, weight in weights.items()}
        return functional_call(module, named, (tokens, table, start)).pow(3).sum()

    return compute


def agree(found: Any, expected: Any) -> None:
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    for i, (actual, reference) in enumerate(pairs):
        assert_close(actual, reference, FINE, f"gradient {i}")


@pytest.mark.parametrize("shared", ["nothing", "tokens", "table", "weights"])
@pytest.mark.parametrize("form", ["tokens", "vectors"])
@pytest.mark.parametrize("config", EXAMPLES, ids=str)
def test_mapped_members_equal_the_naive_scan(config, form, shared):
    cells = [build(CELLS.parse(dict(config)), torch.float64, seed=seed) for seed in range(3)]
    weights = {name: weight.detach() for name, weight in stack_module_state(list(cells))[0].items()}
    tokens, table, start = problem(cells[0], 3)
    inputs = {"w": weights, "table": table, "start": start, "tokens": tokens}
    dims = [0, 0, 0, 0]
    index = {"nothing": None, "weights": 0, "table": 1, "tokens": 3}[shared]
    names = list(inputs)
    if index is not None:
        inputs[names[index]] = pytree.tree_map(lambda x: x[0], inputs[names[index]])
        dims[index] = None
    args = tuple(inputs.values())
    argnums = (0, 1, 2)
    found = vmap(grad(loss(cells[0], form), argnums), tuple(dims))(*args)
    expected = vmap(grad(loss(cells[0], "naive"), argnums), tuple(dims))(*args)
    agree(found, expected)

    def total(*args_but_tokens: Any) -> Tensor:
        return vmap(loss(cells[0], form), tuple(dims))(*args_but_tokens, args[3]).sum()

    through = grad(total, argnums)(*args[:3])
    summed = [
        pytree.tree_map(lambda x: x.sum(0), part) if dim is None else part
        for part, dim in zip(expected, dims, strict=False)
    ]
    agree(through, tuple(summed))


@pytest.mark.parametrize("form", ["tokens", "vectors"])
def test_nested_maps_equal_the_naive_scan(form):
    cell = build(CELLS.parse("mgu"), torch.float64)
    weights = {name: weight.detach() for name, weight in cell.named_parameters()}
    tokens, table, start = problem(cell, 2, 3)
    dims = (None, 0, 0, 0)

    def nested(function: Any) -> Any:
        mapped = vmap(vmap(grad(function, argnums=(0, 1, 2)), dims), dims)
        return mapped(weights, table, start, tokens)

    agree(nested(loss(cell, form)), nested(loss(cell, "naive")))


def test_a_second_derivative_raises():
    cell = build(CELLS.parse("mgu"), torch.float64)
    x, start = data(cell)
    x.requires_grad_()
    (first,) = torch.autograd.grad(cell.scan(x, start).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="naive_scan"):
        first.sum().backward()


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_a_token_outside_the_table_raises(token):
    cell = build(CELLS.parse("mgu"), torch.float64)
    tokens, table, start = problem(cell)
    tokens[1, 2] = token
    message = rf"must be in 0\.\.{VOCAB - 1}; found {min(token, 0)}\.\."
    with pytest.raises(IndexError, match=message):
        cell.fast_scan(TokenInputs(tokens, table), start)
    with pytest.raises(IndexError, match="index out of range in self"):
        cell.naive_scan(TokenInputs(tokens, table), start)


def test_repeated_tokens_repeat_the_batch():
    cell = build(CELLS.parse("mgu"), torch.float64)
    tokens, table, _ = problem(cell)
    twice = TokenInputs(tokens, table).repeated(2)
    assert_close(twice.vectors(), table[tokens].repeat(2, 1, 1), 0.0, "vectors")


def test_a_cell_without_a_kernel_accepts_tokens():
    cell = build(CELLS.parse({"name": "gru", "reset": "input"}), torch.float64)
    tokens, table, start = problem(cell)
    inputs = TokenInputs(tokens, table)
    assert cell.fast_scan(inputs, start) is None
    assert_close(cell.scan(inputs, start), cell.naive_scan(table[tokens], start), 0, "outputs")
