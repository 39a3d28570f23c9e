"""Which runs may share a pack, and which models cannot be packed."""

import dataclasses

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.train.pack_compatibility import pack_key, packing_pays, reason_not_packable, uncut_config
from lmzoo.train.recipe import Recipe
from tests.cases import cases
from tests.tiny import tiny
from tests.toy_model import Bigram

RECIPE = Recipe()


def _mgu(cuts, **fields):
    return zoo.config("DLM46", cell={"name": "mgu", "cuts": cuts}, **fields)


def test_structure_decides_the_pack_key_and_a_cut_that_equals_a_zero_weight_does_not():
    whole = pack_key(_mgu([]), RECIPE)
    # Cut 6 is that of the carry, which no zero weight equals.
    carry = pack_key(_mgu([6]), RECIPE)
    wider = pack_key(_mgu([], width=8), RECIPE)
    starts = pack_key(_mgu([], starts=2), RECIPE)
    for cuts in ([0], [1, 2], [3, 4, 5], [7], [3, 2, 4, 5]):
        assert pack_key(_mgu(cuts), RECIPE) == whole
    assert whole not in (carry, wider, starts)


MAY_DIFFER = {"lr": 0.5, "clip": None, "weight_decay": 0.1, "warmup": 3, "schedule": "cosine"}
MUST_BE_SAME = {"batch": 7, "optimiser": "rmsprop", "accumulate": "epoch", "loss": "sentence"}


def key_of_recipe(**fields):
    recipe = dataclasses.replace(RECIPE, **fields)
    return pack_key(_mgu([]), recipe)


@pytest.mark.parametrize("field", MAY_DIFFER)
def test_fields_of_a_recipe_that_may_differ_in_a_pack(field):
    other = key_of_recipe(**{field: MAY_DIFFER[field]})
    assert other == key_of_recipe()


@pytest.mark.parametrize("field", MUST_BE_SAME)
def test_fields_of_a_recipe_that_are_the_same_in_a_pack(field):
    other = key_of_recipe(**{field: MUST_BE_SAME[field]})
    assert other != key_of_recipe()


def backward(cell):
    """Return a model in whose reader the cell is nested."""
    reader = {"name": "recurrent_lm", "cell": cell, "width": 7}
    return zoo.config("backward_lm", reader=reader)


def test_uncut_config_changes_nested_configs_and_nothing_else():
    config = backward("mgu")
    cut = backward({"name": "mgu", "cuts": [0, 6]})
    uncut = uncut_config(cut).reader
    assert uncut_config(config) == config
    assert uncut.cell.cuts == {"carry"}
    assert dataclasses.replace(uncut, cell=config.reader.cell) == config.reader


def test_count_models_and_noisy_models_cannot_be_packed():
    count_model = tiny("ngram_count")
    noisy = tiny("gpt")
    without_noise = tiny("gpt", dropout=0.0)
    assert "closed form" in reason_not_packable(count_model)
    assert "noise" in reason_not_packable(noisy)
    assert reason_not_packable(without_noise) == ""


class _Toy(Bigram):
    """A model with one of two faults, or none."""

    def __init__(self, fault: str):
        super().__init__(fault, Task(vocab=3, length=4))
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros(()))

    def score_tokens(self, tokens, lengths):
        scores = super().score_tokens(tokens, lengths)
        if self.config == "branch" and scores.sum().item() > 0:
            return scores * 2
        if self.config == "statistics":
            self.count = self.count + 1
        return scores


def test_a_model_that_vmap_cannot_run_is_detected(monkeypatch):
    # The config of a toy is only the name of its fault.
    monkeypatch.setattr("lmzoo.train.pack_compatibility.template_model", lambda model: model)
    assert "vmap cannot run it" in reason_not_packable(_Toy("branch"))
    assert "running statistics" in reason_not_packable(_Toy("statistics"))
    assert reason_not_packable(_Toy("")) == ""


def test_a_model_with_frozen_parameters_cannot_be_packed():
    model = tiny("DLM46")
    model.embedding.weight.requires_grad = False
    assert "frozen" in reason_not_packable(model)


@cases("train/cases.toml", "paying", "row, vocab, width, length, pays")
def test_packing_pays_where_it_was_measured_to_be_faster(row, vocab, width, length, pays):
    task = Task(vocab=vocab, length=length)
    config = zoo.config(row, width=width)
    assert packing_pays(config, RECIPE, task) is pays
