import pytest
import torch

from lmzoo.cells.base import CELLS, Cell
from tests.cells.support import inputs, make, outputs
from tests.laws.support import assert_close
from tests.tiny import FINE

CARRY_CONFIGS = [{"name": "mgru", "carry": "prior"}, {"name": "mgru", "carry": "bilinear"}]
CONFIGS = [*({"name": name} for name in CELLS), *CARRY_CONFIGS]


@pytest.fixture(params=CONFIGS, ids=lambda part: "-".join(part.values()))
def cell(request: pytest.FixtureRequest) -> Cell:
    return make(**request.param)


def test_steps_equal_the_scan(cell: Cell) -> None:
    x, start = inputs(cell)
    state, steps = cell.initial_state(start), []
    for t in range(cell.length):
        y, state = cell.step(cell.project(x[:, t : t + 1])[:, 0], state)
        steps.append(y)
    assert_close(torch.stack(steps, 1), cell.scan(x, start), FINE, "outputs of steps")


def test_outputs_do_not_depend_on_later_inputs(cell: Cell) -> None:
    x, start = inputs(cell)
    changed = torch.cat([x[:, :2], x[:, 2:] + 1], dim=1)
    assert_close(
        cell.scan(changed, start)[:, :2], cell.scan(x, start)[:, :2], 0, "outputs before a change"
    )
    assert not cell.scan(changed, start)[:, 2:].allclose(cell.scan(x, start)[:, 2:])


def test_outputs_depend_on_the_initial_state(cell: Cell) -> None:
    x, start = inputs(cell)
    assert not cell.scan(x, start).allclose(cell.scan(x, start + 0.1))


def test_sequences_of_a_batch_are_independent(cell: Cell) -> None:
    x, start = inputs(cell)
    assert_close(
        cell.scan(x[1:], start[1:]), cell.scan(x, start)[1:], FINE, "outputs of a sequence alone"
    )


def test_the_state_has_the_declared_size(cell: Cell) -> None:
    x, start = inputs(cell)
    state = cell.initial_state(start)
    for t in range(cell.length):
        _, state = cell.step(cell.project(x)[:, t], state)
    sizes = {sum(part[0].numel() for part in s) for s in (cell.initial_state(start), state)}
    assert sizes == {cell.state_size} if cell.state_size else len(sizes) == 2


def test_initial_weights_are_within_the_bounds_of_their_distribution(cell: Cell) -> None:
    for name, weight in cell.named_parameters():
        assert weight.abs().max() <= max(weight.shape[-1] ** -0.5, cell.width**-0.5), name
        assert weight.std() > 0, name


def test_the_seed_decides_the_weights() -> None:
    assert outputs(make("mgu", seed=4)).equal(outputs(make("mgu", seed=4)))
    assert not outputs(make("mgu", seed=4)).allclose(outputs(make("mgu", seed=5)))
