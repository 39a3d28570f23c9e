"""Weight decay acts on matrices; rates, biases, norms and start vectors stay."""

import copy

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.config import from_dict, to_dict
from lmzoo.cells.base import CELLS
from lmzoo.contract import Task
from lmzoo.functional.decay import decays
from lmzoo.train.groups import parameter_groups
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.pack_compatibility import pack_key
from lmzoo.train.recipe import DecayOn, Recipe, stored_recipe
from lmzoo.train.trainer import Training, fit

DECAY = Recipe(optimiser="adamw", lr=3e-3, weight_decay=0.1, batch=16)
RATES = ("bias", "gates_bias", "norm", "log_", "skip", "decay", "nu", "theta", "vectors")


@pytest.mark.parametrize("cell_name", list(CELLS))
def test_only_matrices_of_a_cell_decay(cell_name):
    cell = CELLS.build(CELLS.parse(cell_name), 4, 5)
    for name, parameter in cell.named_parameters():
        own = name.split(".")[-1]
        bias = (cell_name, own) == ("gated_feedback", "b")
        vector = parameter.dim() < 2 or bias or own.startswith(RATES)
        assert decays(parameter) is not vector, name
        assert decays(parameter) is decays(copy.deepcopy(cell).get_parameter(name))


@pytest.mark.parametrize("row", ["mamba", "kda", "m2rnn", "mlstm", "h3", "DLM46"])
def test_steps_without_gradient_move_matrices_only(row):
    model = zoo.build(zoo.config(row, width=8), Task(vocab=9, length=5), seed=0)
    before = copy.deepcopy(model.state_dict())
    optimiser = make_optimiser(DECAY, model)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimiser.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name, p in model.named_parameters() if decays(p) and p.any()}
    assert len(moved) < len(before)


def test_without_decay_there_is_one_group_and_one_identity():
    assert len(parameter_groups(DECAY, torch.nn.Linear(2, 2))) == 2
    assert len(parameter_groups(Recipe(), torch.nn.Linear(2, 2))) == 1
    assert Recipe(weight_decay_on="all") == Recipe()
    assert "weight_decay_on" not in to_dict(Recipe())


def test_recipes_of_earlier_versions_decay_all_parameters():
    fields = to_dict(Recipe(weight_decay=0.1))
    assert from_dict(Recipe, fields) == stored_recipe(fields) == Recipe(weight_decay=0.1)
    del fields["weight_decay_on"]
    assert stored_recipe(fields).weight_decay_on is DecayOn.ALL
    assert stored_recipe(to_dict(Recipe())) == Recipe()


@pytest.mark.parametrize("on", DecayOn)
def test_members_without_decay_share_a_pack_with_others(on):
    config = zoo.config("rg_lru", width=4)
    recipes = [Recipe(batch=16, weight_decay=0.1, weight_decay_on=on), Recipe(batch=16)]
    same = on is DecayOn.MATRICES
    assert (pack_key(config, recipes[0]) == pack_key(config, recipes[1])) is same


@pytest.mark.parametrize("on", DecayOn)
def test_a_rate_is_where_gradients_put_it_in_packs_too(corpus, on):
    """Decay of a rate shows in the weights of a member, as alone."""
    recipe = Recipe(batch=30, optimiser="adamw", weight_decay=0.5, weight_decay_on=on)

    def member():
        return Training(zoo.build(zoo.config("rg_lru", width=4), corpus.task, 0), recipe, 0)

    alone, packed = member(), [member(), member()]
    assert list(fit(alone, corpus, 1))
    KeptTrainers().train_epoch(packed, corpus)
    for name, weight in alone.model.state_dict().items():
        torch.testing.assert_close(packed[1].model.state_dict()[name], weight, rtol=0, atol=1e-4)
    numbered = [group["params"] for group in packed[0].dump()["optimiser"]["param_groups"]]
    assert [i for group in numbered for i in group] == [*range(len(packed[0].parameters))]
    assert len(numbered) == (1 if on is DecayOn.ALL else 2)
