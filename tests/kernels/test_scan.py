"""Scans of vectors and of tokens: outputs and gradients, also of packs under `torch.func` maps."""

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils import _pytree as pytree

from lmzoo.cells.base import CELLS
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.laws.tiny import assert_close
from tests.cases import parametrize
from tests.kernels.variants import EXAMPLES, build, data, variants
from tests.kernels.variants import agree as scans_agree
from tests.tiny import FINE

VOCAB = 6
WIDTH = 5


def problem(cell, *members):
    """Return tokens (.., 3, 4), a table (.., V, E) with one unused row, and starts."""
    _, start = data(cell)
    start = start.expand(*members, -1, -1)
    # Every call has the same tokens.
    generator = torch.Generator().manual_seed(0)
    shape = members + (VOCAB, WIDTH)
    table = torch.randn(shape, generator=generator, dtype=start.dtype)
    # The last row of the table is not used.
    shape = members + (3, 4)
    tokens = torch.randint(VOCAB - 1, shape, generator=generator)
    return tokens, table, start


def double(config, seed=0):
    """Return a cell in float64."""
    return build(CELLS.parse(config), torch.float64, seed=seed)


@parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_tokens_equal_vectors_for_every_variant(name):
    for config in variants(name):
        cell = build(config, torch.float64)
        tokens, table, start = problem(cell)
        inputs = TokenInputs(tokens, table)
        scans_agree(cell, FINE, inputs, start)


class Scan(torch.nn.Module):
    """A module whose forward is a cell's scan of tokens or vectors, or its naive scan."""

    def __init__(self, cell, form):
        super().__init__()
        self.cell = cell
        self.form = form

    def forward(self, tokens, table, start):
        inputs = TokenInputs(tokens, table)
        if self.form == "tokens":
            return self.cell.scan(inputs, start)
        scan = self.cell.scan
        if self.form == "naive":
            scan = self.cell.naive_scan
        return scan(inputs.vectors(), start)


def loss(cell, form):
    """Return a function (weights, table, start, tokens) -> sum of cubed outputs."""
    module = Scan(cell, form)

    def compute(weights, table, start, tokens):
        named = {f"cell.{name}": weight for name, weight in weights.items()}
        inputs = (tokens, table, start)
        # `functional_call` names a weight by its path in the module.
        outputs = functional_call(module, named, inputs)
        # Cubes, so that a gradient depends on its output.
        return outputs.pow(3).sum()

    return compute


def detached(named):
    return {name: weight.detach() for name, weight in named}


def agree(found, expected):
    actual = pytree.tree_leaves(found)
    references = pytree.tree_leaves(expected)
    pairs = zip(actual, references, strict=True)
    for i, (gradient, reference) in enumerate(pairs):
        assert_close(gradient, reference, FINE, f"gradient {i}")


ARGUMENTS = ("weights", "table", "start", "tokens")
NO_TOKENS = (0, 1, 2)
"""The arguments of a loss that have gradients."""


class Pack:
    """The arguments of three members, one of which they may share."""

    def __init__(self, config, shared):
        cells = [double(config, seed) for seed in range(3)]
        self.cell = cells[0]
        weights, _ = stack_module_state(cells)
        weights = detached(weights.items())
        tokens, table, start = problem(self.cell, 3)
        self.arguments = [weights, table, start, tokens]
        self.dims = [0, 0, 0, 0]
        if shared != "nothing":
            place = ARGUMENTS.index(shared)
            # What is shared has no axis of members.
            of_all = self.arguments[place]
            self.arguments[place] = pytree.tree_map(lambda x: x[0], of_all)
            self.dims[place] = None

    def mapped(self, function):
        return vmap(function, tuple(self.dims))

    def gradients(self, form):
        """Return the gradients of each member."""
        # Tokens have no gradient.
        function = loss(self.cell, form)
        inside = grad(function, NO_TOKENS)
        return self.mapped(inside)(*self.arguments)


SHARING = ["nothing", "tokens", "table", "weights"]
SHARED = parametrize("shared", SHARING)
FORMS = parametrize("form", ["tokens", "vectors"])
CONFIGS = parametrize("config", EXAMPLES, ids=str)


@SHARED
@FORMS
@CONFIGS
def test_gradients_of_mapped_members_equal_the_naive_scan(config, form, shared):
    pack = Pack(config, shared)
    actual = pack.gradients(form)
    expected = pack.gradients("naive")
    agree(actual, expected)


@SHARED
@FORMS
@CONFIGS
def test_gradients_through_a_map_equal_the_naive_scan(config, form, shared):
    """What members share has the sum of their gradients."""
    pack = Pack(config, shared)
    expected = list(pack.gradients("naive"))
    for place in NO_TOKENS:
        if pack.dims[place] is None:
            of_members = expected[place]
            expected[place] = pytree.tree_map(lambda x: x.sum(0), of_members)
    function = pack.mapped(loss(pack.cell, form))

    def total(*arguments):
        return function(*arguments).sum()

    through = grad(total, NO_TOKENS)(*pack.arguments)
    agree(through, tuple(expected))


@FORMS
def test_nested_maps_equal_the_naive_scan(form):
    cell = double("mgu")
    weights = detached(cell.named_parameters())
    tokens, table, start = problem(cell, 2, 3)
    # Members share the weights.
    dims = (None, 0, 0, 0)

    def nested(form):
        function = grad(loss(cell, form), NO_TOKENS)
        mapped = vmap(vmap(function, dims), dims)
        return mapped(weights, table, start, tokens)

    agree(nested(form), nested("naive"))


def test_a_second_derivative_raises():
    cell = double("mgu")
    x, start = data(cell)
    x.requires_grad_()
    total = cell.scan(x, start).sum()
    (first,) = torch.autograd.grad(total, x, create_graph=True)
    with pytest.raises(NotImplementedError, match="naive_scan"):
        first.sum().backward()


@parametrize("token", [-1, VOCAB])
def test_a_token_outside_the_table_raises(token):
    cell = double("mgu")
    tokens, table, start = problem(cell)
    tokens[1, 2] = token
    inputs = TokenInputs(tokens, table)
    # The message names the smallest token.
    least = min(token, 0)
    message = rf"must be in 0\.\.{VOCAB - 1}; found {least}\.\."
    with pytest.raises(IndexError, match=message):
        cell.fast_scan(inputs, start)
    with pytest.raises(IndexError, match="index out of range in self"):
        cell.naive_scan(inputs, start)


def test_repeated_tokens_repeat_the_batch():
    tokens, table, _ = problem(double("mgu"))
    twice = TokenInputs(tokens, table).repeated(2)
    actual = twice.vectors()
    expected = table[tokens].repeat(2, 1, 1)
    assert_close(actual, expected, 0.0, "vectors")


def test_a_cell_without_a_kernel_accepts_tokens():
    cell = double({"name": "gru", "reset": "input"})
    tokens, table, start = problem(cell)
    inputs = TokenInputs(tokens, table)
    assert cell.fast_scan(inputs, start) is None
    actual = cell.scan(inputs, start)
    expected = cell.naive_scan(table[tokens], start)
    assert_close(actual, expected, 0, "outputs")
