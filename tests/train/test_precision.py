"""The precision of products on a GPU is part of a run's identity, and of its pack key."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.kernels.device import (
    Precision,
    check_precision,
    current_precision,
    flag,
    settings,
    use_precision,
)
from lmzoo.kernels.guest import SETTINGS
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
    fields = dict.fromkeys(IDENTITY_FIELDS, 0)
    return run_identity(fields | {"recipe": to_dict(recipe)})


@pytest.mark.parametrize("name", IDENTITIES)
def test_the_default_leaves_no_trace_in_the_identity(name):
    recipe = RECIPES[name]
    assert "precision" not in to_dict(recipe)
    assert identity(recipe) == IDENTITIES[name]


def test_each_precision_is_another_run_and_another_pack():
    model = zoo.config("DLM46")
    identities = set()
    keys = set()
    for precision in Precision:
        recipe = Recipe(precision=precision)
        assert from_dict(Recipe, to_dict(recipe)) == recipe
        identities.add(identity(recipe))
        keys.add(pack_key(model, recipe))
    assert len(identities) == len(keys) == len(Precision)


@pytest.mark.parametrize("precision", OTHERS)
def test_a_cpu_refuses_all_but_the_default(corpus, precision):
    with pytest.raises(UserError, match=rf"recipe.precision={precision} needs a GPU: a CPU mult"):
        member(corpus, recipe=Recipe(precision=precision))
    # A GPU takes each of them.
    check_precision(precision, torch.device("cuda"))
    check_precision(Precision.TF32X3, torch.device("cpu"))


@pytest.mark.parametrize("precision", Precision)
def test_the_products_of_torch_follow(precision):
    def allowed():
        """Return whether products and convolutions may be rounded to TF32."""
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before = allowed()
    is_less = precision in OTHERS
    with use_precision(precision):
        assert current_precision() is precision
        assert allowed() == (is_less, is_less)
    assert current_precision() is Precision.TF32X3
    assert allowed() == before


def test_a_general_precision_that_is_taken_back_leaves_no_trace():
    backends = torch.backends
    owners = (
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.cudnn.rnn,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
    )
    before = [owner.fp32_precision for owner in owners]
    for general in ("tf32", "ieee"):
        with settings([flag(backends, "fp32_precision", general)]):
            during = [owner.fp32_precision for owner in owners]
            with use_precision(Precision.TF32X3), settings(SETTINGS):
                assert backends.cuda.matmul.fp32_precision == "ieee"
            assert [owner.fp32_precision for owner in owners] == during
        assert [owner.fp32_precision for owner in owners] == before


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

    # There is no GPU here.
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
