"""µP: a step changes as much at all widths. Weight decay acts on matrices."""

import copy

import pytest
import torch
from torch import Tensor

import lmzoo
from lmzoo import zoo
from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.contract import Task
from lmzoo.functional.parameters import decays
from lmzoo.train.groups import build_model, parameter_groups, rate_factors
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.pack_compatibility import pack_key, template_model
from lmzoo.train.recipe import DecayOn, Recipe, stored_recipe
from lmzoo.train.trainer import Training, fit

TASK = Task(vocab=11, length=6)
WIDTHS = (32, 64, 128, 256)
ROWS = ("gru", "modern_decoder")


def change(row: str, width: int, recipe: Recipe) -> float:
    """Return the root mean square of the change of the logits after four steps."""
    fields = {"window": 6} if row == "modern_decoder" else {}
    model = build_model(zoo.config(row, width=width, **fields), TASK, 0, recipe)
    training = Training(model, recipe, 0)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(TASK.vocab, (16, TASK.length), generator=generator)
    lengths = torch.full((16,), TASK.length)

    def logits() -> Tensor:
        with torch.no_grad():
            return model.next_log_prob(tokens[:, :-1])

    before = logits()
    for _ in range(4):
        assert training.step is not None
        training.step(recipe.lr, None, tokens, lengths)
    return float((logits() - before).square().mean().sqrt())


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_the_change_of_the_logits_does_not_grow_with_the_width(row: str, optimiser: str) -> None:
    recipes = [
        Recipe(optimiser=optimiser, lr=2e-3, clip=None, parametrisation=kind)
        for kind in ("mup", "standard")
    ]
    mup, standard = ([change(row, width, recipe) for width in WIDTHS] for recipe in recipes)
    assert mup[0] == standard[0]  # at the base width both are one
    assert max(mup) < 1.5 * min(mup), mup
    assert standard[-1] > 2 * standard[0], standard


def test_the_factors_of_a_model() -> None:
    recipe = Recipe(parametrisation="mup", base_width=16)
    model = zoo.build(zoo.config("modern_decoder", width=64), TASK)
    factors = rate_factors(recipe, model)
    assert factors["embedding.weight"] == factors["norm.weight"] == 1
    assert factors["blocks.0.key.weight"] == 1 / 4
    assert factors["blocks.0.query.weight"] == 1 / 8
    units = -(-8 * 64 // 3), -(-8 * 16 // 3)
    assert factors["blocks.0.down.weight"] == pytest.approx(units[1] / units[0])


def test_a_pack_scores_with_the_scale_of_its_members_and_a_base_is_standard() -> None:
    config = zoo.config("gru", width=32)
    wide = build_model(config, TASK, 0, Recipe(parametrisation="mup", base_width=8))
    assert wide.output_scale == template_model(wide).output_scale == 1 / 4
    base, plain = (
        build_model(config, TASK, 0, r) for r in (Recipe(parametrisation="mup"), Recipe())
    )
    assert all(map(torch.equal, base.parameters(), plain.parameters()))
    assert base.output_scale == 1
    table = wide.embedding.weight / plain.embedding.weight
    torch.testing.assert_close(table, torch.full_like(table, 2.0))


def test_a_loaded_run_scores_as_the_run_did(tmp_path) -> None:
    (tmp_path / "text.txt").write_text("a man runs\na dog sits\n" * 40)
    recipe = {"parametrisation": "mup", "base_width": 8, "batch": 16}
    model = lmzoo.build("gru", f"text:{tmp_path / 'text.txt'}", recipe=recipe, width=16)
    model.fit(1)
    model.save(tmp_path / "run")
    again = lmzoo.load_run(tmp_path / "run")
    assert again.module.output_scale == 1 / 2
    assert again.test().token == model.test().token


def test_models_without_a_tied_width_are_refused() -> None:
    recipe = Recipe(parametrisation="mup")
    for row, words in (("DLM46", "emission=vector"), ("hmm", "no recurrent"), ("gpt", "spread")):
        with pytest.raises(UserError, match=words):
            build_model(zoo.config(row), TASK, 0, recipe)


def test_counts_have_no_width_to_follow() -> None:
    recipe = Recipe(parametrisation="mup")
    counts = build_model(zoo.config("ngram_count"), TASK, 0, recipe)
    assert rate_factors(recipe, counts) == {}


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
