import pytest
import torch

from lmzoo.cells.base import CELLS, Cell
from tests.cells.run import inputs, make, outputs
from tests.laws.support import assert_close
from tests.tiny import FINE

CARRIES = [{"name": "mgru", "carry": "prior"}, {"name": "mgru", "carry": "bilinear"}]
EVERY = [*({"name": name} for name in CELLS), *CARRIES]


@pytest.fixture(params=EVERY, ids=lambda part: "-".join(part.values()))
def cell(request: pytest.FixtureRequest) -> Cell:
    return make(**request.param)


def test_stepping_equals_scanning(cell: Cell) -> None:
    x, start = inputs(cell)
    state, stepped = cell.initial_state(start), []
    for t in range(cell.length):
        y, state = cell.step(cell.project(x[:, t : t + 1])[:, 0], state)
        stepped.append(y)
    assert_close(torch.stack(stepped, 1), cell.scan(x, start), FINE, "stepped outputs")


def test_an_output_reads_no_later_input(cell: Cell) -> None:
    x, start = inputs(cell)
    changed = torch.cat([x[:, :2], x[:, 2:] + 1], dim=1)
    assert_close(
        cell.scan(changed, start)[:, :2], cell.scan(x, start)[:, :2], 0, "outputs before a change"
    )
    assert not cell.scan(changed, start)[:, 2:].allclose(cell.scan(x, start)[:, 2:])


def test_outputs_depend_on_the_start(cell: Cell) -> None:
    x, start = inputs(cell)
    assert not cell.scan(x, start).allclose(cell.scan(x, start + 0.1))


def test_sequences_do_not_mix(cell: Cell) -> None:
    x, start = inputs(cell)
    assert_close(
        cell.scan(x[1:], start[1:]), cell.scan(x, start)[1:], FINE, "outputs of a sequence alone"
    )


def test_the_state_has_the_stated_size(cell: Cell) -> None:
    x, start = inputs(cell)
    state = cell.initial_state(start)
    for t in range(cell.length):
        _, state = cell.step(cell.project(x)[:, t], state)
    sizes = {sum(part[0].numel() for part in s) for s in (cell.initial_state(start), state)}
    assert sizes == {cell.state_size} if cell.state_size else len(sizes) == 2


def test_every_weight_is_drawn_within_its_bounds(cell: Cell) -> None:
    for name, weight in cell.named_parameters():
        assert weight.abs().max() <= max(weight.shape[-1] ** -0.5, cell.width**-0.5), name
        assert weight.std() > 0, name


def test_equal_seeds_give_equal_outputs_and_others_do_not() -> None:
    assert outputs(make("mgu", seed=4)).equal(outputs(make("mgu", seed=4)))
    assert not outputs(make("mgu", seed=4)).allclose(outputs(make("mgu", seed=5)))
