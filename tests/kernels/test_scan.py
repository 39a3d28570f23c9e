"""Scans of vectors and of tokens: outputs and gradients, also of packs under `torch.func` maps."""

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
    _, start = data(cell)
    start = start.expand(*members, -1, -1)
    table = torch.randn(*members, VOCAB, WIDTH, generator=generator, dtype=start.dtype)
    # The last row of the table is not used.
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

    def __init__(self, cell: Cell, form: str):
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


def loss(cell: Cell, form: str):
    """Return a function (weights, table, start, tokens) -> sum of cubed outputs."""
    module = Scan(cell, form)

    def compute(weights: dict[str, Tensor], table: Tensor, start: Tensor, tokens: Tensor) -> Tensor:
        named = {f"cell.{name}": weight for name, weight in weights.items()}
        outputs = functional_call(module, named, (tokens, table, start))
        return outputs.pow(3).sum()

    return compute


def agree(found, expected):
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    for i, (actual, reference) in enumerate(pairs):
        assert_close(actual, reference, FINE, f"gradient {i}")


ARGUMENTS = ("weights", "table", "start", "tokens")
NO_TOKENS = (0, 1, 2)
"""The arguments of a loss that have gradients."""


class Pack:
    """The arguments of three members, one of which they may share."""

    def __init__(self, config, shared: str):
        cells = [build(CELLS.parse(config), torch.float64, seed=seed) for seed in range(3)]
        self.cell = cells[0]
        weights, _ = stack_module_state(cells)
        weights = {name: weight.detach() for name, weight in weights.items()}
        tokens, table, start = problem(self.cell, 3)
        self.arguments = [weights, table, start, tokens]
        self.dims: list[int | None] = [0, 0, 0, 0]
        if shared != "nothing":
            place = ARGUMENTS.index(shared)
            self.arguments[place] = pytree.tree_map(lambda x: x[0], self.arguments[place])
            self.dims[place] = None

    def mapped(self, function):
        return vmap(function, tuple(self.dims))

    def gradients(self, form: str):
        """Return the gradients of each member."""
        # Tokens have no gradient.
        inside = grad(loss(self.cell, form), NO_TOKENS)
        return self.mapped(inside)(*self.arguments)


SHARED = pytest.mark.parametrize("shared", ["nothing", "tokens", "table", "weights"])
FORMS = pytest.mark.parametrize("form", ["tokens", "vectors"])
CONFIGS = pytest.mark.parametrize("config", EXAMPLES, ids=str)


@SHARED
@FORMS
@CONFIGS
def test_gradients_of_mapped_members_equal_the_naive_scan(config, form, shared):
    pack = Pack(config, shared)
    agree(pack.gradients(form), pack.gradients("naive"))


@SHARED
@FORMS
@CONFIGS
def test_gradients_through_a_map_equal_the_naive_scan(config, form, shared):
    """What members share has the sum of their gradients."""
    pack = Pack(config, shared)
    expected = list(pack.gradients("naive"))
    for place in NO_TOKENS:
        if pack.dims[place] is None:
            expected[place] = pytree.tree_map(lambda x: x.sum(0), expected[place])

    def total(*arguments):
        return pack.mapped(loss(pack.cell, form))(*arguments).sum()

    through = grad(total, NO_TOKENS)(*pack.arguments)
    agree(through, tuple(expected))


@FORMS
def test_nested_maps_equal_the_naive_scan(form):
    cell = build(CELLS.parse("mgu"), torch.float64)
    weights = {name: weight.detach() for name, weight in cell.named_parameters()}
    tokens, table, start = problem(cell, 2, 3)
    dims = (None, 0, 0, 0)

    def nested(form):
        function = grad(loss(cell, form), NO_TOKENS)
        mapped = vmap(vmap(function, dims), dims)
        return mapped(weights, table, start, tokens)

    agree(nested(form), nested("naive"))


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
    least = min(token, 0)
    message = rf"must be in 0\.\.{VOCAB - 1}; found {least}\.\."
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
