"""Optimisers take torch's steps, Muon those of its equations; µP, and what decays."""

import copy
import math
import subprocess
import sys
from collections import defaultdict

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
from tests.cases import cases
from tests.tiny import FINE, assert_equal_double, tiny

TASK = Task(vocab=11, length=6)
WIDTHS = (32, 64, 128, 256)
ROWS = ("gru", "modern_decoder")


def change(row: str, width: int, recipe: Recipe) -> float:
    """Return the root mean square of the change of the logits after four steps."""
    fields = {}
    if row == "modern_decoder":
        fields = {"window": 6}
    config = zoo.config(row, width=width, **fields)
    model = build_model(config, TASK, 0, recipe)
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
    difference = logits() - before
    return float(difference.square().mean().sqrt())


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_the_change_of_the_logits_does_not_grow_with_the_width(row, optimiser):
    def changes(parametrisation: str) -> list[float]:
        recipe = Recipe(optimiser=optimiser, lr=2e-3, clip=None, parametrisation=parametrisation)
        return [change(row, width, recipe) for width in WIDTHS]

    mup = changes("mup")
    standard = changes("standard")
    assert mup[0] == standard[0]  # at the base width both are one
    assert max(mup) < 1.5 * min(mup), mup
    # Without µP it grows, or the test would see nothing.
    assert standard[-1] > 2 * standard[0], standard


def test_the_factors_of_a_model():
    recipe = Recipe(parametrisation="mup", base_width=16)
    config = zoo.config("modern_decoder", width=64)
    factors = rate_factors(recipe, zoo.build(config, TASK))
    assert factors["embedding.weight"] == factors["norm.weight"] == 1
    assert factors["blocks.0.key.weight"] == 1 / 4
    assert factors["blocks.0.query.weight"] == 1 / 8
    # The feed-forward layer has 8/3 of the width, rounded up.
    units = math.ceil(8 * 64 / 3)
    base_units = math.ceil(8 * 16 / 3)
    assert factors["blocks.0.down.weight"] == pytest.approx(base_units / units)


def gru_of_width_32(**recipe):
    config = zoo.config("gru", width=32)
    return build_model(config, TASK, 0, Recipe(**recipe))


def test_a_pack_scores_with_the_scale_of_its_members():
    wide = gru_of_width_32(parametrisation="mup", base_width=8)
    assert wide.output_scale == template_model(wide).output_scale == 1 / 4


def test_a_model_of_the_base_width_is_standard():
    base = gru_of_width_32(parametrisation="mup")
    plain = gru_of_width_32()
    assert base.output_scale == 1
    for name, weight in base.named_parameters():
        assert plain.get_parameter(name).equal(weight)


def test_the_embedding_of_a_wider_model_is_larger():
    wide = gru_of_width_32(parametrisation="mup", base_width=8)
    plain = gru_of_width_32()
    # The square root of 32 / 8.
    torch.testing.assert_close(wide.embedding.weight, 2 * plain.embedding.weight)


def test_a_loaded_run_scores_as_the_run_did(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\n" * 40)
    recipe = {"parametrisation": "mup", "base_width": 8, "batch": 16}
    model = lmzoo.build("gru", f"text:{text}", recipe=recipe, width=16)
    model.fit(1)
    model.save(tmp_path / "run")
    again = lmzoo.load_run(tmp_path / "run")
    assert again.module.output_scale == 1 / 2
    assert again.test().token == model.test().token


UNTIED = [("DLM46", "emission=vector"), ("hmm", "no recurrent"), ("gpt", "spread")]


@pytest.mark.parametrize(("row", "words"), UNTIED)
def test_a_model_without_a_tied_width_is_refused(row, words):
    recipe = Recipe(parametrisation="mup")
    config = zoo.config(row)
    with pytest.raises(UserError, match=words):
        build_model(config, TASK, 0, recipe)


def test_counts_have_no_width_to_follow():
    recipe = Recipe(parametrisation="mup")
    config = zoo.config("ngram_count")
    counts = build_model(config, TASK, 0, recipe)
    assert rate_factors(recipe, counts) == {}


DECAY = Recipe(optimiser="adamw", lr=3e-3, weight_decay=0.1, batch=16)
RATES = ("bias", "gates_bias", "norm", "log_", "skip", "decay", "nu", "theta", "vectors")


def small_cell(name):
    config = CELLS.parse(name)
    return CELLS.build(config, 4, 5)


@pytest.mark.parametrize("cell_name", list(CELLS))
def test_only_matrices_of_a_cell_decay(cell_name):
    for path, parameter in small_cell(cell_name).named_parameters():
        name = path.split(".")[-1]
        # The gated feedback cell has a bias for each layer in one table.
        table_of_biases = cell_name == "gated_feedback" and name == "b"
        is_vector = parameter.dim() < 2 or table_of_biases or name.startswith(RATES)
        assert decays(parameter) is not is_vector, path


@pytest.mark.parametrize("cell_name", list(CELLS))
def test_parameters_of_a_copied_cell_decay_as_before(cell_name):
    cell = small_cell(cell_name)
    copied = copy.deepcopy(cell)
    for path, parameter in cell.named_parameters():
        same = copied.get_parameter(path)
        assert decays(same) is decays(parameter), path


@pytest.mark.parametrize("row", ["mamba", "kda", "m2rnn", "mlstm", "h3", "DLM46"])
def test_steps_without_gradient_move_matrices_only(row):
    config = zoo.config(row, width=8)
    model = zoo.build(config, Task(vocab=9, length=5), seed=0)
    before = copy.deepcopy(model.state_dict())
    optimiser = make_optimiser(DECAY, model)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimiser.step()
    for name, parameter in model.named_parameters():
        moved = not parameter.equal(before[name])
        # A share of zero is zero.
        is_zero = not parameter.any()
        assert moved == (decays(parameter) and not is_zero), name


def test_parameters_with_and_without_decay_are_two_groups():
    layer = torch.nn.Linear(2, 2)
    assert len(parameter_groups(DECAY, layer)) == 2
    assert len(parameter_groups(Recipe(), layer)) == 1


def test_what_decays_is_no_part_of_a_recipe_without_decay():
    assert Recipe(weight_decay_on="all") == Recipe()
    assert "weight_decay_on" not in to_dict(Recipe())


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(weight_decay=0.1)], ids=["none", "some"])
def test_a_stored_recipe_is_read_as_it_was(recipe):
    fields = to_dict(recipe)
    assert from_dict(Recipe, fields) == recipe
    assert stored_recipe(fields) == recipe


def test_recipes_of_earlier_versions_decay_all_parameters():
    fields = to_dict(Recipe(weight_decay=0.1))
    del fields["weight_decay_on"]
    assert stored_recipe(fields).weight_decay_on is DecayOn.ALL


@pytest.mark.parametrize("on", DecayOn)
def test_members_without_decay_share_a_pack_with_matrices_that_decay(on):
    config = zoo.config("rg_lru", width=4)
    decaying = Recipe(batch=16, weight_decay=0.1, weight_decay_on=on)
    plain = Recipe(batch=16)
    same_pack = pack_key(config, decaying) == pack_key(config, plain)
    assert same_pack is (on is DecayOn.MATRICES)


@pytest.mark.parametrize("on", DecayOn)
def test_a_rate_is_where_gradients_put_it_in_packs_too(corpus, on):
    """Decay of a rate shows in the weights of a member, as alone."""
    recipe = Recipe(batch=30, optimiser="adamw", weight_decay=0.5, weight_decay_on=on)

    def member():
        config = zoo.config("rg_lru", width=4)
        model = zoo.build(config, corpus.task, 0)
        return Training(model, recipe, 0)

    alone = member()
    first = member()
    second = member()
    assert list(fit(alone, corpus, 1))
    KeptTrainers().train_epoch([first, second], corpus)
    weights = second.model.state_dict()
    expected = alone.model.state_dict()
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-4)
    groups = first.dump()["optimiser"]["param_groups"]
    numbers = []
    for group in groups:
        numbers += group["params"]
    assert numbers == list(range(len(first.parameters)))
    if on is DecayOn.ALL:
        assert len(groups) == 1
    else:
        assert len(groups) == 2


def new_parameters() -> list[torch.nn.Parameter]:
    """Return two matrices, the same at each call."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(3, 4, generator=generator)
    second = torch.randn(3, 4, generator=generator)
    return [torch.nn.Parameter(first), torch.nn.Parameter(second)]


def torch_optimiser(name: Optimiser, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name is Optimiser.RMSPROP:
        return torch.optim.RMSprop(parameters, lr=0.1, alpha=0.99, eps=0.01, weight_decay=0.1)
    if name is Optimiser.SGD:
        return torch.optim.SGD(parameters, lr=0.01, weight_decay=0.1)
    cls = torch.optim.AdamW
    if name is Optimiser.ADAM:
        cls = torch.optim.Adam
    return cls(parameters, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


@pytest.mark.parametrize("name", [name for name in Optimiser if name is not Optimiser.MUON])
def test_steps_equal_those_of_torch(name):
    actual = new_parameters()
    expected = new_parameters()
    lr = 0.1
    if name is Optimiser.SGD:
        lr = 0.01
    recipe = Recipe(optimiser=name, lr=lr, weight_decay=0.1, beta2=0.95)
    optimiser = make_optimiser(recipe, [{"params": actual}])
    reference = torch_optimiser(name, expected)
    for step in range(6):
        if step == 3:  # as if the process had been restarted
            state = copy.deepcopy(optimiser.state_dict())
            optimiser = make_optimiser(recipe, [{"params": actual}])
            optimiser.load_state_dict(state)
        step_downhill(optimiser, actual)
        step_downhill(reference, expected)
        for parameter, other in zip(actual, expected, strict=True):
            assert parameter.equal(other)
    first, _ = new_parameters()
    assert actual[0].isfinite().all()
    # It has moved.
    assert not actual[0].equal(first)


def step_downhill(optimiser: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]):
    """Make a step that lessens the sum of fourth powers."""
    optimiser.zero_grad()
    loss = torch.stack(parameters).pow(4).sum()
    loss.backward()
    optimiser.step()


def test_no_training_imports_the_compiler(tmp_path):
    """Neither a new run, nor one that is resumed, a replayed pack, or counting parameters."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\n" * 40)
    options = ["--corpus", f"text:{text}", "--set", "model.width=4", "--out", str(tmp_path)]
    command = [sys.executable, "-c", TRAIN, "train", "DLM46"]
    printed = subprocess.check_output(command + options, text=True)
    imported = set(printed.splitlines()[-1].split())
    # Or nothing was trained.
    assert "torch.optim" in imported
    assert imported.isdisjoint({"torch._dynamo", "torch._inductor"})


TRAIN = """
import sys
from collections import defaultdict
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
    matrices = x.view(-1, *shape[-2:])
    expected = torch.stack([polynomial(matrix) for matrix in matrices])
    assert_equal_double(orthogonalise(x), expected.view(shape))


def test_the_zero_matrix_stays_zero():
    assert not orthogonalise(torch.zeros(3, 2)).any()


class Stepped:
    """A parameter that makes the steps of Muon, or of AdamW."""

    def __init__(self, weight: Tensor, lr: float, *, muon: bool) -> None:
        self.weight = weight.detach().clone()
        self.mean = torch.zeros_like(weight)
        self.square = torch.zeros_like(weight)
        self.lr = lr
        self.muon = muon
        self.n = 0

    def step(self, g: Tensor) -> None:
        self.n += 1
        # Only matrices decay.
        if self.weight.dim() > 1:
            self.weight = self.weight * (1 - self.lr * 0.3)
        if self.muon:
            update = self.by_muon(g)
        else:
            update = self.by_adamw(g)
        self.weight = self.weight - self.lr * update

    def by_muon(self, g: Tensor) -> Tensor:
        self.mean = 0.95 * self.mean + 0.05 * g
        u = polynomial(0.05 * g + 0.95 * self.mean)
        return 0.2 * max(g.shape) ** 0.5 * u

    def by_adamw(self, g: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * g
        self.square = 0.999 * self.square + 0.001 * g * g
        mean = self.mean / (1 - 0.9**self.n)
        root = (self.square / (1 - 0.999**self.n)).sqrt()
        return mean / (root + 1e-8)


def test_steps_are_those_of_the_equations():
    model = tiny("gru", vocab=5).double()
    role = roles(model)
    factors = rate_factors(RECIPE, model)
    expected = {}
    for name, weight in model.named_parameters():
        expected[name] = Stepped(weight, 0.1 * factors[name], muon=role[name] == MATRICES)
    optimiser = make_optimiser(RECIPE, model)
    for step in range(3):
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn_like(parameter)
            expected[name].step(parameter.grad)
        set_rate(optimiser, 0.1)
        optimiser.step()
        for name, parameter in model.named_parameters():
            assert_close(parameter, expected[name].weight, FINE, f"{name} after step {step}")


@pytest.fixture
def untied():
    config = zoo.config("mamba", tied=False, width=8)
    return zoo.build(config, Task(vocab=5, length=4))


def test_the_roles_of_parameters(untied):
    names = defaultdict(set)
    for path, role in roles(untied).items():
        names[role].add(path.removeprefix("cell.w."))
    assert names[TABLES] == {"embedding.weight", "head.weight"}
    assert {"conv", "log_rate", "skip"} <= names[OTHERS]
    assert {"x", "b", "c", "out"} <= names[MATRICES]


def test_each_role_has_a_group(untied):
    groups = parameter_groups(RECIPE, untied)
    matrices, tables, vectors, undecayed = [settings_of(group) for group in groups]
    assert matrices == {"muon": True, "scale": 2.0}
    assert tables == {"scale": 0.5}
    assert vectors == {}
    assert undecayed == {"weight_decay": 0.0}


def settings_of(group):
    return {name: group[name] for name in ("muon", "scale", "weight_decay") if name in group}


def test_by_default_all_parameters_are_one_group(untied):
    groups = parameter_groups(Recipe(), untied)
    assert groups == [{"params": list(untied.parameters())}]


@cases("train/cases.toml", "groups", "fields, words")
def test_what_a_group_cannot_have_is_refused(fields, words):
    with pytest.raises(UserError, match=words) as caught:
        from_dict(Recipe, fields)
    assert "\n" not in str(caught.value)
