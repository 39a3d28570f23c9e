"""Optimisers take torch's steps, Muon those of its equations; µP, and what decays."""

import copy
import subprocess
import sys

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
from lmzoo.laws.tiny import assert_close
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.optimisers import (
    MATRICES,
    OTHERS,
    TABLES,
    build_model,
    make_optimiser,
    orthogonalise,
    parameter_groups,
    rate_factors,
    roles,
    set_rate,
)
from lmzoo.train.pack_compatibility import pack_key, template_model
from lmzoo.train.recipe import DecayOn, Optimiser, Recipe, stored_recipe
from lmzoo.train.trainer import Training, fit
from tests.tiny import FINE, assert_equal_double, tiny

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
def test_the_change_of_the_logits_does_not_grow_with_the_width(row, optimiser):
    recipes = [
        Recipe(optimiser=optimiser, lr=2e-3, clip=None, parametrisation=kind)
        for kind in ("mup", "standard")
    ]
    mup, standard = ([change(row, width, recipe) for width in WIDTHS] for recipe in recipes)
    assert mup[0] == standard[0]  # at the base width both are one
    assert max(mup) < 1.5 * min(mup), mup
    assert standard[-1] > 2 * standard[0], standard


def test_the_factors_of_a_model():
    recipe = Recipe(parametrisation="mup", base_width=16)
    model = zoo.build(zoo.config("modern_decoder", width=64), TASK)
    factors = rate_factors(recipe, model)
    assert factors["embedding.weight"] == factors["norm.weight"] == 1
    assert factors["blocks.0.key.weight"] == 1 / 4
    assert factors["blocks.0.query.weight"] == 1 / 8
    units = -(-8 * 64 // 3), -(-8 * 16 // 3)
    assert factors["blocks.0.down.weight"] == pytest.approx(units[1] / units[0])


def test_a_pack_scores_with_the_scale_of_its_members_and_a_base_is_standard():
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


def test_a_loaded_run_scores_as_the_run_did(tmp_path):
    (tmp_path / "text.txt").write_text("a man runs\na dog sits\n" * 40)
    recipe = {"parametrisation": "mup", "base_width": 8, "batch": 16}
    model = lmzoo.build("gru", f"text:{tmp_path / 'text.txt'}", recipe=recipe, width=16)
    model.fit(1)
    model.save(tmp_path / "run")
    again = lmzoo.load_run(tmp_path / "run")
    assert again.module.output_scale == 1 / 2
    assert again.test().token == model.test().token


def test_models_without_a_tied_width_are_refused():
    recipe = Recipe(parametrisation="mup")
    for row, words in (("DLM46", "emission=vector"), ("hmm", "no recurrent"), ("gpt", "spread")):
        with pytest.raises(UserError, match=words):
            build_model(zoo.config(row), TASK, 0, recipe)


def test_counts_have_no_width_to_follow():
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


def new_parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 4, generator=generator)) for _ in range(2)]


def torch_optimiser(name: Optimiser, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name is Optimiser.RMSPROP:
        return torch.optim.RMSprop(parameters, lr=0.1, alpha=0.99, eps=0.01, weight_decay=0.1)
    if name is Optimiser.SGD:
        return torch.optim.SGD(parameters, lr=0.01, weight_decay=0.1)
    cls = torch.optim.Adam if name is Optimiser.ADAM else torch.optim.AdamW
    return cls(parameters, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


@pytest.mark.parametrize("name", [name for name in Optimiser if name is not Optimiser.MUON])
def test_steps_equal_those_of_torch(name):
    actual, expected = new_parameters(), new_parameters()
    lr = 0.01 if name is Optimiser.SGD else 0.1
    recipe = Recipe(optimiser=name, lr=lr, weight_decay=0.1, beta2=0.95)
    optimiser, reference = (
        make_optimiser(recipe, [{"params": actual}]),
        torch_optimiser(name, expected),
    )
    for step in range(6):
        if step == 3:  # as if the process had been restarted
            fresh = make_optimiser(recipe, [{"params": actual}])
            fresh.load_state_dict(copy.deepcopy(optimiser.state_dict()))
            optimiser = fresh
        for current, parameters in ((optimiser, actual), (reference, expected)):
            current.zero_grad()
            sum((p**4).sum() for p in parameters).backward()
            current.step()
        assert all(map(torch.equal, actual, expected))
    assert not any(p.grad_fn or p.isnan().any() for p in actual)
    assert not torch.equal(actual[0], new_parameters()[0])


def test_no_training_imports_the_compiler(tmp_path):
    """Neither a new run, nor one that is resumed, a replayed pack, or counting parameters."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\n" * 40)
    options = ["--corpus", f"text:{text}", "--set", "model.width=4", "--out", str(tmp_path)]
    process = subprocess.run(
        [sys.executable, "-c", TRAIN, "train", "DLM46", *options],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    imported = set(process.stdout.splitlines()[-1].split())
    assert "torch.optim" in imported
    assert not {"torch._dynamo", "torch._inductor"} & imported


TRAIN = """
import sys
from lmzoo.laws_of_training.packing import random_corpus
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training
from lmzoo.trainables.parameter_budget import count_parameters
from tests.cli.run_lmzoo import run_lmzoo
from tests.tiny import tiny
for epochs in ("1", "2"):
    assert run_lmzoo(*sys.argv[1:], "--epochs", epochs) == 0
members = [Training(tiny("recurrent_lm"), Recipe(batch=5), seed) for seed in range(2)]
trainers = KeptTrainers()
for _ in range(3):
    trainers.train_epoch(members, random_corpus(members[0].model))
assert trainers._own[members[0]].stepper.replays
for model in map(tiny, ("DLM46", "gpt")):
    size = sum(weight.numel() for weight in model.parameters())
    assert count_parameters(model.config, model.task) == size
print()
print(*sys.modules)
"""


RECIPE = Recipe(optimiser="muon", lr=0.1, weight_decay=0.3, rate_tables=0.5, rate_matrices=2.0)


def polynomial(x: Tensor) -> Tensor:
    """Return O(x) of one matrix from its singular values."""
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    s = s / s.square().sum().sqrt()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ s.diag() @ v


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 3, 6, 4)])
def test_newton_schulz_acts_on_the_singular_values(shape):
    x = torch.randn(shape, dtype=torch.float64)
    expected = torch.stack([polynomial(m) for m in x.view(-1, *shape[-2:])]).view(shape)
    assert_equal_double(orthogonalise(x), expected)
    assert orthogonalise(torch.zeros(3, 2)).equal(torch.zeros(3, 2))


def test_steps_are_those_of_the_equations():
    model = tiny("gru", vocab=5).double()
    own, factors = roles(model), rate_factors(RECIPE, model)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    means = {name: torch.zeros_like(p) for name, p in weights.items()}
    squares = {name: torch.zeros_like(p) for name, p in weights.items()}
    optimiser = make_optimiser(RECIPE, model)
    for n in range(1, 4):
        for name, p in model.named_parameters():
            p.grad = g = torch.randn_like(p)
            lr, decay = 0.1 * factors[name], 0.3 * (p.dim() > 1)
            w = weights[name] * (1 - lr * decay)
            mean = 0.95 if own[name] == MATRICES else 0.9
            m = means[name] = mean * means[name] + (1 - mean) * g
            if own[name] == MATRICES:
                u = polynomial(0.05 * g + 0.95 * m)
                weights[name] = w - lr * 0.2 * max(p.shape) ** 0.5 * u
                continue
            v = squares[name] = 0.999 * squares[name] + 0.001 * g * g
            root = (v / (1 - 0.999**n)).sqrt() + 1e-8
            weights[name] = w - lr * m / (1 - 0.9**n) / root
        set_rate(optimiser, 0.1)
        optimiser.step()
        for name, p in model.named_parameters():
            assert_close(p, weights[name], FINE, f"{name} after step {n}")


def test_the_roles_of_parameters():
    model = zoo.build(zoo.config("mamba", tied=False, width=8), Task(vocab=5, length=4))
    found = roles(model)
    assert {name for name, role in found.items() if role == TABLES} == {
        "embedding.weight", "head.weight",
    }  # fmt: skip
    others = {name.split(".")[-1] for name, role in found.items() if role == OTHERS}
    assert {"conv", "log_rate", "skip"} <= others
    matrices = {name.split(".")[-1] for name, role in found.items() if role == MATRICES}
    assert {"x", "b", "c", "out"} <= matrices
    groups = parameter_groups(RECIPE, model)
    assert [(g.get("muon"), g.get("scale"), g.get("weight_decay")) for g in groups] == [
        (True, 2.0, None), (None, 0.5, None), (None, None, None), (None, None, 0.0),
    ]  # fmt: skip
    assert parameter_groups(Recipe(), model) == [{"params": [*model.parameters()]}]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimiser": "sgd", "rate_tables": 2.0}, "sgd has one rate for all parameters"),
        ({"optimiser": "muon", "accumulate": "epoch"}, "set it to step"),
        ({"base_width": 64}, "needs parametrisation=mup"),
        ({"parametrisation": "mup", "init": "normal_0.1"}, "draws of its own"),
        ({"rate_others": 0.0}, "rate_others"),
    ],
)
def test_what_a_group_cannot_have_is_refused(fields, words):
    with pytest.raises(UserError, match=words) as caught:
        from_dict(Recipe, fields)
    assert "\n" not in str(caught.value)
