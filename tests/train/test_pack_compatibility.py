"""Which runs may share a pack, and which models cannot be packed."""

import dataclasses

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
    key = pack_key(_mgu([]), RECIPE)
    for cuts in ([0], [1, 2], [3, 4, 5], [7], [3, 2, 4, 5]):
        assert pack_key(_mgu(cuts), RECIPE) == key
    for other in (_mgu([6]), _mgu([], width=8), _mgu([], starts=2)):
        assert pack_key(other, RECIPE) != key


def test_which_recipe_fields_may_differ():
    may = {"lr": 0.5, "clip": None, "weight_decay": 0.1, "warmup": 3, "schedule": "cosine"}
    must_not = {"batch": 7, "optimiser": "rmsprop", "accumulate": "epoch", "loss": "sentence"}
    keys = {
        field: pack_key(_mgu([]), dataclasses.replace(RECIPE, **{field: value}))
        for field, value in (may | must_not).items()
    }
    same = {field for field, key in keys.items() if key == pack_key(_mgu([]), RECIPE)}
    assert same == set(may)


def test_uncut_config_changes_nested_configs_and_nothing_else():
    config = zoo.config("backward_lm", reader={"name": "recurrent_lm", "cell": "mgu", "width": 7})
    cut = zoo.config(
        "backward_lm",
        reader={"name": "recurrent_lm", "cell": {"name": "mgu", "cuts": [0, 6]}, "width": 7},
    )
    assert uncut_config(config) == config
    assert uncut_config(cut).reader.cell.cuts == {"carry"}
    assert dataclasses.replace(uncut_config(cut).reader, cell=config.reader.cell) == config.reader


def test_count_models_and_noisy_models_cannot_be_packed():
    assert "closed form" in reason_not_packable(tiny("ngram_count"))
    assert "noise" in reason_not_packable(tiny("gpt"))
    assert reason_not_packable(tiny("gpt", dropout=0.0)) == ""


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
    assert packing_pays(zoo.config(row, width=width), RECIPE, task) is pays
