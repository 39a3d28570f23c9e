"""One step for all members equals the step of torch's optimiser for each member."""

import math

import pytest
import torch

from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.pack_parameters import Decays, StackedOptimiser
from lmzoo.train.recipe import Recipe

P, N = 5, 37
RATES = [1e-3, 1e-2, 0.1, 3e-2, 1e-2]
CLIPS = [1.0, math.inf, 0.125, 1e9, 2.0]
DECAYS = [0.0, 0.1, 0.01, 0.0, 0.3]
STEPS_BEFORE = [0, 0, 4, 0, 2]
"""Steps that each row made alone before it was stacked."""
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-13}


def _groups(rows):
    settings = zip(rows, RATES, DECAYS, strict=True)
    return [{"params": [row], "lr": lr, "weight_decay": decay} for row, lr, decay in settings]


def _stacked(kind, values, decays=(), columns=None):
    columns = torch.ones(values.shape[1], dtype=torch.bool) if columns is None else columns
    own = Decays(values, columns)
    own.set(decays or [0.0] * len(values))
    return StackedOptimiser(Recipe(optimiser=kind), values, own)


def _step(row, optimiser, gradient, clip):
    row.grad = gradient.clone()
    if math.isfinite(clip):
        torch.nn.utils.clip_grad_norm_([row], clip)
    optimiser.step()


@pytest.mark.parametrize("kind", ["adam", "adamw", "rmsprop", "sgd"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_every_row_makes_the_steps_of_torch(kind, dtype):
    recipe = Recipe(optimiser=kind)
    torch.manual_seed(0)
    single_rows = [torch.nn.Parameter(row) for row in torch.randn(P, N, dtype=dtype)]
    optimisers = [make_optimiser(recipe, [group]) for group in _groups(single_rows)]
    singles = list(zip(single_rows, optimisers, CLIPS, strict=True))
    for (row, optimiser, clip), count in zip(singles, STEPS_BEFORE, strict=True):
        for _ in range(count):
            _step(row, optimiser, torch.randn(N, dtype=dtype), clip)

    values = torch.stack([row.detach() for row in single_rows])
    stacked = _stacked(kind, values, DECAYS)
    states = [optimisers[p].state[single_rows[p]] for p in range(P)]
    for p, state in enumerate(states):
        for key, value in state.items():
            stacked.state[key][p] = value

    for gradients in torch.randn(6, P, N, dtype=dtype):
        for (row, single, clip), gradient in zip(singles, gradients, strict=True):
            _step(row, single, gradient, clip)
        stacked.step(RATES, torch.tensor(CLIPS), gradients)
    tolerance = TOLERANCES[dtype]
    for p, state in enumerate(states):
        actual = {**{key: rows[p] for key, rows in stacked.state.items()}, "row": values[p]}
        assert actual.keys() == {*state, "row"}
        for key, value in {**state, "row": single_rows[p].detach()}.items():
            torch.testing.assert_close(actual[key], value, rtol=tolerance, atol=tolerance)


def test_a_nan_stays_in_its_row():
    values, gradients = torch.ones(2, 16), torch.ones(2, 16)
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
