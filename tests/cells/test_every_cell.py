import pytest

from lmzoo.cells.base import CELLS, Cell
from lmzoo.laws.cells import UNCUT_LAWS, CellLaw
from tests.cells.support import make, outputs, own_weights

CARRY_CONFIGS = [{"name": "mgru", "carry": "prior"}, {"name": "mgru", "carry": "bilinear"}]
CONFIGS = [*({"name": name} for name in CELLS), *CARRY_CONFIGS]


@pytest.fixture(params=CONFIGS, ids=lambda part: "-".join(part.values()))
def cell(request: pytest.FixtureRequest) -> Cell:
    return make(**request.param)


@pytest.mark.parametrize("law", UNCUT_LAWS, ids=lambda law: law.__name__)
def test_every_cell_obeys_every_law(cell: Cell, law: CellLaw) -> None:
    law(cell)


def test_initial_weights_are_within_the_bounds_of_their_distribution(cell: Cell) -> None:
    own = own_weights(cell)
    for name, weight in cell.named_parameters():
        if name in own:
            continue  # the tests of its cell know its distribution
        assert weight.abs().max() <= max(weight.shape[-1] ** -0.5, cell.width**-0.5), name
        assert weight.std() > 0, name


def test_the_seed_decides_the_weights() -> None:
    assert outputs(make("mgu", seed=4)).equal(outputs(make("mgu", seed=4)))
    assert not outputs(make("mgu", seed=4)).allclose(outputs(make("mgu", seed=5)))
