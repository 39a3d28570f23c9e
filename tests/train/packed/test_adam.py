"""Adam for all rows at once takes the steps that torch's takes of each."""

import math

import pytest
import torch

from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.packed.adam import StackedAdam
from lmzoo.train.recipe import Recipe

P, N = 5, 37
RATES = [1e-3, 1e-2, 0.1, 3e-2, 1e-2]
CLIPS = [1.0, math.inf, 0.125, 1e9, 2.0]
DECAYS = [0.0, 0.1, 0.01, 0.0, 0.3]
BEFORE = [0, 0, 4, 0, 2]
"""Steps that each row made before they came together."""
CLOSE = {torch.float32: 1e-6, torch.float64: 1e-13}


def _groups(rows):
    settings = zip(rows, RATES, DECAYS, strict=True)
    return [{"params": [row], "lr": lr, "weight_decay": decay} for row, lr, decay in settings]


def _step(row, optimiser, gradient, clip):
    row.grad = gradient.clone()
    if math.isfinite(clip):
        torch.nn.utils.clip_grad_norm_([row], clip)
    optimiser.step()


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("numbers", CLOSE, ids=str)
def test_rows_move_as_torch_moves_them(kind, numbers):
    recipe = Recipe(optimiser=kind)
    torch.manual_seed(0)
    alone = [torch.nn.Parameter(row) for row in torch.randn(P, N, dtype=numbers)]
    optimisers = [make_optimiser(recipe, [group]) for group in _groups(alone)]
    each = list(zip(alone, optimisers, CLIPS, strict=True))
    for (row, optimiser, clip), count in zip(each, BEFORE, strict=True):
        for _ in range(count):
            _step(row, optimiser, torch.randn(N, dtype=numbers), clip)

    values = torch.stack([row.detach() for row in alone])
    rows = [torch.nn.Parameter(row) for row in values.unbind()]
    optimiser = make_optimiser(recipe, _groups(rows))
    assert StackedAdam.moves(optimiser, values)
    adam = StackedAdam(optimiser, values)
    states = [optimisers[p].state[alone[p]] for p in range(P)]
    for row, state in zip(rows, states, strict=True):
        for key, value in state.items():
            optimiser.state[row][key].copy_(value)

    for gradients in torch.randn(6, P, N, dtype=numbers):
        for (row, one, clip), gradient in zip(each, gradients, strict=True):
            _step(row, one, gradient, clip)
        adam.step(RATES, torch.tensor(CLIPS), gradients)
    for p, state in enumerate(states):
        found = {**optimiser.state[rows[p]], "row": rows[p].detach()}
        assert found.keys() == {*state, "row"}
        for key, value in {**state, "row": alone[p].detach()}.items():
            torch.testing.assert_close(found[key], value, rtol=CLOSE[numbers], atol=CLOSE[numbers])


def test_what_is_not_a_number_stays_in_its_row():
    values, gradients = torch.ones(2, 16), torch.ones(2, 16)
    gradients[0, 3] = math.nan
    optimiser = make_optimiser(Recipe(), [{"params": [torch.nn.Parameter(r)]} for r in values])
    StackedAdam(optimiser, values).step([0.1, 0.1], torch.tensor([1.0, 1.0]), gradients)
    assert values[0].isnan().all()
    assert values[1].isfinite().all()


def test_other_optimisers_and_devices_go_on_by_themselves():
    weight = torch.nn.Parameter(torch.ones(4))
    assert not StackedAdam.moves(
        make_optimiser(Recipe(optimiser="rmsprop"), [weight]), weight[None]
    )
    assert not StackedAdam.moves(make_optimiser(Recipe(), [weight]), weight[None].to("meta"))
