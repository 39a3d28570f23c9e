"""One step for all members equals the step of torch's optimiser for each member."""

import math
from functools import partial

import pytest
import torch

from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.pack_parameters import Decays, StackedOptimiser
from lmzoo.train.recipe import Recipe

P = 5
N = 37
# Rows of a pack differ in rate, clipping and decay.
RATES = [1e-3, 1e-2, 0.1, 3e-2, 1e-2]
CLIPS = [1.0, math.inf, 0.125, 1e9, 2.0]
DECAYS = [0.0, 0.1, 0.01, 0.0, 0.3]
STEPS_BEFORE = [0, 0, 4, 0, 2]
"""Steps that each row made alone before it was stacked."""
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-13}


def _stacked(kind, values, decays, columns):
    weight_decays = Decays(values, columns)
    weight_decays.set(decays)
    recipe = Recipe(optimiser=kind)
    return StackedOptimiser(recipe, values, weight_decays)


class Single:
    """Row `p`, which torch's optimiser trains."""

    def __init__(self, kind, p, values):
        self.row = torch.nn.Parameter(values)
        group = {"params": [self.row], "lr": RATES[p], "weight_decay": DECAYS[p]}
        recipe = Recipe(optimiser=kind)
        self.optimiser = make_optimiser(recipe, [group])
        self.clip = CLIPS[p]

    def step(self, gradient):
        self.row.grad = gradient.clone()
        # An infinite threshold is that of a row that is not clipped.
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
    singles = []
    for p in range(P):
        single = Single(kind, p, torch.randn(N, dtype=dtype))
        for gradient in torch.randn(STEPS_BEFORE[p], N, dtype=dtype):
            single.step(gradient)
        singles.append(single)
    return singles


def test_every_row_makes_the_steps_of_torch(kind, dtype, singles):
    values = torch.stack([single.row.detach() for single in singles])
    stacked = _stacked(kind, values, DECAYS, torch.ones(N).bool())
    # The states of steps before are taken over.
    for p, single in enumerate(singles):
        for key, value in single.state.items():
            stacked.state[key][p] = value
    clips = torch.tensor(CLIPS)
    for gradients in torch.randn(6, P, N, dtype=dtype):
        for single, gradient in zip(singles, gradients, strict=True):
            single.step(gradient)
        stacked.step(RATES, clips, gradients)
    tolerance = TOLERANCES[dtype]
    assert_close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
    for p, single in enumerate(singles):
        state = {key: rows[p] for key, rows in stacked.state.items()}
        assert_close(state, dict(single.state))
        assert_close(values[p], single.row.detach())


def test_a_nan_stays_in_its_row():
    values = torch.ones(2, 16)
    gradients = torch.ones(2, 16)
    gradients[0, 3] = math.nan
    adam = _stacked("adam", values, [0.0, 0.0], torch.ones(16).bool())
    adam.step([0.1, 0.1], torch.ones(2), gradients)
    broken, healthy = values
    # The norm of the gradients, by which all of them are clipped, is NaN.
    assert broken.isnan().all()
    assert healthy.isfinite().all()


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_columns_without_decay_stay_where_there_is_no_gradient(kind):
    values = torch.ones(2, 8)
    first_half = torch.arange(8) < 4
    adam = _stacked(kind, values, [0.1, 0.0], first_half)
    no_gradient = torch.zeros(2, 8)
    adam.step([0.1, 0.1], torch.ones(2), no_gradient)
    assert values[0, :4].lt(1).all()
    assert values[0, 4:].eq(1).all()
    assert values[1].eq(1).all()
