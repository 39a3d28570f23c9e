"""The precision of products on a GPU is part of a run's identity, and of its pack key."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.kernels.device import Precision, check_precision, current_precision, use_precision
from lmzoo.lab.store.records import IDENTITY_FIELDS, run_identity
from lmzoo.train import pack_trainer as packed
from lmzoo.train import step, trainer
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_compatibility import pack_key
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import fit
from tests.train.members import member

OTHERS = [p for p in Precision if p is not Precision.TF32X3]
IDENTITIES = {"default": "6f491ff69772", "published": "d51e3aa71dfa"}
"""Recipe -> identity of a run with it, before there was a choice of precision."""


def identity(recipe: Recipe) -> str:
    return run_identity({**dict.fromkeys(IDENTITY_FIELDS, 0), "recipe": to_dict(recipe)})


@pytest.mark.parametrize("name", IDENTITIES)
def test_the_default_leaves_no_trace_in_the_identity(name):
    assert "precision" not in to_dict(RECIPES[name])
    assert identity(RECIPES[name]) == IDENTITIES[name]


def test_each_precision_is_another_run_and_another_pack():
    recipes = [Recipe(precision=precision) for precision in Precision]
    assert all(from_dict(Recipe, to_dict(recipe)) == recipe for recipe in recipes)
    assert len({identity(recipe) for recipe in recipes}) == len(Precision)
    model = zoo.config("DLM46")
    assert len({pack_key(model, recipe) for recipe in recipes}) == len(Precision)


@pytest.mark.parametrize("precision", OTHERS)
def test_a_cpu_refuses_all_but_the_default(corpus, precision):
    with pytest.raises(UserError, match=rf"recipe.precision={precision} needs a GPU: a CPU mult"):
        member(corpus, recipe=Recipe(precision=precision))
    check_precision(precision, torch.device("cuda"))
    check_precision(Precision.TF32X3, torch.device("cpu"))


@pytest.mark.parametrize("precision", Precision)
def test_the_products_of_torch_follow(precision):
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [backend.allow_tf32 for backend in backends]
    with use_precision(precision):
        assert current_precision() is precision
        assert {backend.allow_tf32 for backend in backends} == {precision in OTHERS}
    assert current_precision() is Precision.TF32X3
    assert [backend.allow_tf32 for backend in backends] == before


@pytest.fixture
def seen(monkeypatch):
    """The precision of each step, validation and test."""
    seen: list[Precision] = []

    def observe(owner, name):
        function = getattr(owner, name)

        def observed(*args, **kwargs):
            seen.append(current_precision())
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, observed)

    monkeypatch.setattr(trainer, "check_precision", lambda *_: None)
    for module in (step, packed):
        observe(module, "compute_loss")
    observe(trainer, "evaluate")
    observe(packed.PackedTrainer, "evaluate")
    return seen


@pytest.mark.parametrize("alone", [True, False])
def test_steps_and_validation_use_the_precision_of_the_recipe(corpus, seen, alone):
    own = member(corpus, recipe=Recipe(batch=16, precision=Precision.BF16))
    if alone:
        next(fit(own, corpus, 1))
    else:
        KeptTrainers().train_epoch([own], corpus)
    assert len(seen) > 2
    assert set(seen) == {Precision.BF16}
    assert current_precision() is Precision.TF32X3
