"""One step for all members equals the step of torch's optimiser for each member."""

import math

import pytest
import torch

from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.pack_parameters import Decays, StackedOptimiser
from lmzoo.train.recipe import Recipe

P = 5
N = 37
RATES = [1e-3, 1e-2, 0.1, 3e-2, 1e-2]
CLIPS = [1.0, math.inf, 0.125, 1e9, 2.0]
DECAYS = [0.0, 0.1, 0.01, 0.0, 0.3]
STEPS_BEFORE = [0, 0, 4, 0, 2]
"""Steps that each row made alone before it was stacked."""
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-13}


def _groups(rows):
    settings = zip(rows, RATES, DECAYS, strict=True)
    return [{"params": [row], "lr": lr, "weight_decay": decay} for row, lr, decay in settings]


def _stacked(kind, values, decays=None, columns=None):
    if decays is None:
        decays = [0.0] * len(values)
    if columns is None:
        columns = torch.ones(values.shape[1], dtype=torch.bool)
    weight_decays = Decays(values, columns)
    weight_decays.set(decays)
    return StackedOptimiser(Recipe(optimiser=kind), values, weight_decays)


class Single:
    """A row that torch's optimiser trains."""

    def __init__(self, kind, group, clip):
        [self.row] = group["params"]
        self.optimiser = make_optimiser(Recipe(optimiser=kind), [group])
        self.clip = clip

    def step(self, gradient):
        self.row.grad = gradient.clone()
        if math.isfinite(self.clip):
            torch.nn.utils.clip_grad_norm_([self.row], self.clip)
        self.optimiser.step()

    @property
    def state(self):
        return self.optimiser.state[self.row]


@pytest.fixture(params=["adam", "adamw", "rmsprop", "sgd"])
def kind(request):
    return request.param


@pytest.fixture(params=TOLERANCES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def singles(kind, dtype):
    """Return rows, some of which made steps alone."""
    torch.manual_seed(0)
    rows = [torch.nn.Parameter(row) for row in torch.randn(P, N, dtype=dtype)]
    groups = _groups(rows)
    singles = [Single(kind, group, clip) for group, clip in zip(groups, CLIPS, strict=True)]
    for single, count in zip(singles, STEPS_BEFORE, strict=True):
        for _ in range(count):
            single.step(torch.randn(N, dtype=dtype))
    return singles


def test_every_row_makes_the_steps_of_torch(kind, dtype, singles):
    values = torch.stack([single.row.detach() for single in singles])
    # The states of steps before are taken over.
    stacked = _stacked(kind, values, DECAYS)
    for p, single in enumerate(singles):
        for key, value in single.state.items():
            stacked.state[key][p] = value
    for gradients in torch.randn(6, P, N, dtype=dtype):
        for single, gradient in zip(singles, gradients, strict=True):
            single.step(gradient)
        stacked.step(RATES, torch.tensor(CLIPS), gradients)
    tolerance = TOLERANCES[dtype]
    for p, single in enumerate(singles):
        actual = {key: rows[p] for key, rows in stacked.state.items()}
        torch.testing.assert_close(actual, dict(single.state), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(values[p], single.row.detach(), rtol=tolerance, atol=tolerance)


def test_a_nan_stays_in_its_row():
    values = torch.ones(2, 16)
    gradients = torch.ones(2, 16)
    gradients[0, 3] = math.nan
    _stacked("adam", values).step([0.1, 0.1], torch.tensor([1.0, 1.0]), gradients)
    assert values[0].isnan().all()
    assert values[1].isfinite().all()


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_columns_without_decay_stay_where_there_is_no_gradient(kind):
    values = torch.ones(2, 8)
    adam = _stacked(kind, values, [0.1, 0.0], torch.arange(8) < 4)
    adam.step([0.1, 0.1], torch.ones(2), torch.zeros(2, 8))
    assert (values[0, :4] < 1).all()
    assert (values[0, 4:] == 1).all()
    assert (values[1] == 1).all()
