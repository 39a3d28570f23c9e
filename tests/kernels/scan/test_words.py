"""Inputs that are words are their vectors: in outputs, in every gradient, for every variant."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils import _pytree as pytree

from lmzoo.cells.base import CELLS, Cell
from lmzoo.kernels import dispatch as processor
from lmzoo.kernels.scan.autograd import scan
from lmzoo.kernels.scan.mgu import MGUScan
from lmzoo.kernels.scan.tokens import Words
from tests.kernels.scan.variants import ONE_EACH, build, data, variants
from tests.laws.ask import same
from tests.tiny import FINE

VOCAB, WIDTH = 6, 5

pytestmark = pytest.mark.usefixtures("either_way")


def problem(cell: Cell, *members: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (.., 3, 4), a table (.., V, E) of whose words one is missing, and starts."""
    generator = torch.Generator().manual_seed(0)
    start = data(cell)[1].expand(*members, -1, -1)
    table = torch.randn(*members, VOCAB, WIDTH, generator=generator, dtype=start.dtype)
    tokens = torch.randint(VOCAB - 1, (*members, 3, 4), generator=generator)
    return tokens, table, start


def results(
    cell: Cell, tokens: Tensor, table: Tensor, start: Tensor, *, words: bool
) -> list[Tensor]:
    """Outputs, and gradients of the table, the start and every weight under one weighting."""
    table, start = table.clone().requires_grad_(), start.clone().requires_grad_()
    y = cell.fast_scan(Words(tokens, table), start) if words else None
    y = cell.naive_scan(table[tokens], start) if y is None else y
    weighting = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    given = [table, start, *cell.parameters()]
    loss = (y * weighting).sum() + 0 * sum(one.sum() for one in given)
    return [y.detach(), *torch.autograd.grad(loss, given)]


@pytest.mark.parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_every_variant_reads_words_as_their_vectors(name: str) -> None:
    for config in variants(name):
        read_alike(build(config, torch.float64), FINE)


@pytest.mark.parametrize("config", ONE_EACH, ids=str)
def test_in_single_precision_too(config: dict[str, Any]) -> None:
    read_alike(build(CELLS.read(dict(config)), torch.float32), 2e-5)


def read_alike(cell: Cell, tolerance: float) -> None:
    given = problem(cell)
    found, expected = (results(cell, *given, words=words) for words in (True, False))
    for i, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        size = max(1.0, float(theirs.abs().max()))
        same(mine / size, theirs / size, tolerance, f"{cell.config}: {i}")


class Scan(torch.nn.Module):
    """A cell's scan of words as a module's call, or the loop over their vectors."""

    def __init__(self, cell: Cell, *, naive: bool) -> None:
        super().__init__()
        self.cell, self.naive = cell, naive

    def forward(self, tokens: Tensor, table: Tensor, start: Tensor) -> Tensor:
        words = Words(tokens, table)
        return (
            self.cell.naive_scan(words.vectors(), start)
            if self.naive
            else self.cell.scan(words, start)
        )


def loss(cell: Cell, *, naive: bool = False) -> Any:
    """(weights, table, start, tokens) -> a sum of cubes."""
    module = Scan(cell, naive=naive)

    def of(weights: dict[str, Tensor], table: Tensor, start: Tensor, tokens: Tensor) -> Tensor:
        named = {f"cell.{name}": weight for name, weight in weights.items()}
        return functional_call(module, named, (tokens, table, start)).pow(3).sum()

    return of


def agree(found: Any, expected: Any) -> None:
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    for i, (mine, theirs) in enumerate(pairs):
        same(mine, theirs, FINE, f"gradient {i}")


@pytest.mark.parametrize("shared", ["nothing", "words", "table", "weights"])
@pytest.mark.parametrize("config", ONE_EACH, ids=str)
def test_members_are_each_by_itself(config: dict[str, Any], shared: str) -> None:
    cells = [build(CELLS.read(dict(config)), torch.float64, seed=seed) for seed in range(3)]
    weights = {name: one.detach() for name, one in stack_module_state(list(cells))[0].items()}
    tokens, table, start = problem(cells[0], 3)
    given, dims = {"w": weights, "table": table, "start": start, "words": tokens}, [0, 0, 0, 0]
    which = {"nothing": None, "weights": 0, "table": 1, "words": 3}[shared]
    names = list(given)
    if which is not None:
        given[names[which]] = pytree.tree_map(lambda one: one[0], given[names[which]])
        dims[which] = None
    args = tuple(given.values())
    ways = dict(argnums=(0, 1, 2))
    found = vmap(grad(loss(cells[0]), **ways), tuple(dims))(*args)
    expected = vmap(grad(loss(cells[0], naive=True), **ways), tuple(dims))(*args)
    agree(found, expected)

    def total(*three: Any) -> Tensor:
        return vmap(loss(cells[0]), tuple(dims))(*three, args[3]).sum()

    through = grad(total, **ways)(*args[:3])
    summed = [
        pytree.tree_map(lambda one: one.sum(0), part) if dim is None else part
        for part, dim in zip(expected, dims, strict=False)
    ]
    agree(through, tuple(summed))


def test_a_map_of_a_map_is_a_map() -> None:
    cell = build(CELLS.read("mgu"), torch.float64)
    weights = {name: one.detach() for name, one in cell.named_parameters()}
    tokens, table, start = problem(cell, 2, 3)
    dims = (None, 0, 0, 0)

    def both(one: Any) -> Any:
        return vmap(vmap(grad(one, argnums=(0, 1, 2)), dims), dims)(weights, table, start, tokens)

    agree(both(loss(cell)), both(loss(cell, naive=True)))


@pytest.mark.parametrize("word", [-1, VOCAB])
def test_a_word_without_a_row_is_refused(word: int) -> None:
    cell = build(CELLS.read("mgu"), torch.float64)
    tokens, table, start = problem(cell)
    tokens[1, 2] = word
    loops, operations = f"not in 0..{VOCAB - 1}: {min(word, 0)}..", "index out of range in self"
    with pytest.raises(IndexError, match=f"{loops}|{operations}"):
        cell.scan(Words(tokens, table), start)


@pytest.mark.parametrize("either_way", ["compiled"], indirect=True)
def test_an_explicit_member_axis_stands_before_the_batch() -> None:
    cell = build(CELLS.read("mgu"), torch.float64)
    tokens, table, start = problem(cell, 3)
    weights = [getattr(cell.w, name) for name in ("xf", "hf", "bf", "xh", "hh", "bh")]
    stacked = [one.expand(3, *one.shape) for one in weights]
    together = scan(MGUScan(), Words(tokens.movedim(-1, 0), table), start, stacked)
    for i in range(3):
        alone = cell.scan(Words(tokens[i], table[i]), start[i])
        same(together[:, i], alone.transpose(0, 1), FINE, f"member {i}")


def test_where_nothing_is_compiled_words_are_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = build(CELLS.read("mgu"), torch.float64)
    given = problem(cell)
    expected = results(cell, *given, words=False)
    monkeypatch.setattr(processor, "TYPES", set())
    monkeypatch.delattr("lmzoo.kernels.scan.projections.OfWords.into")
    for mine, theirs in zip(results(cell, *given, words=True), expected, strict=True):
        same(mine, theirs, FINE, "as vectors")


def test_a_cell_without_a_fast_scan_reads_words_too() -> None:
    cell = build(CELLS.read({"name": "gru", "reset": "input"}), torch.float64)
    tokens, table, start = problem(cell)
    words = Words(tokens, table)
    assert cell.fast_scan(words, start) is None
    same(cell.scan(words, start), cell.naive_scan(table[tokens], start), FINE, "outputs")


def test_repeated_words_are_the_same_sequences_again() -> None:
    cell = build(CELLS.read("mgu"), torch.float64)
    tokens, table, _ = problem(cell)
    twice = Words(tokens, table).repeated(2)
    same(twice.vectors(), table[tokens].repeat(2, 1, 1), 0.0, "vectors")
