"""Which runs may share a pack, and which models cannot be packed."""

import dataclasses

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.contract import LanguageModel, Task
from lmzoo.train.packed.compatibility import (
    pack_key,
    packing_pays,
    reason_not_packable,
    uncut_config,
)
from lmzoo.train.recipe import Recipe
from tests.tiny import tiny

RECIPE = Recipe()


def _mgu(cuts, **fields):
    return zoo.config("DLM46", cell={"name": "mgu", "cuts": cuts}, **fields)


@pytest.mark.parametrize("cuts", [[0], [1, 2], [3, 4, 5], [7], [3, 2, 4, 5]])
def test_a_cut_that_equals_a_zero_weight_does_not_change_the_pack_key(cuts):
    assert pack_key(_mgu(cuts), RECIPE) == pack_key(_mgu([]), RECIPE)


@pytest.mark.parametrize("other", [_mgu([6]), _mgu([], width=8), _mgu([], starts=2)])
def test_a_structural_difference_changes_the_pack_key(other):
    assert pack_key(other, RECIPE) != pack_key(_mgu([]), RECIPE)


@pytest.mark.parametrize(
    ("field", "value", "compatible"),
    [
        ("lr", 0.5, True),
        ("clip", None, True),
        ("weight_decay", 0.1, True),
        ("warmup", 3, True),
        ("schedule", "cosine", True),
        ("batch", 7, False),
        ("optimiser", "rmsprop", False),
        ("accumulate", "epoch", False),
        ("loss", "sentence", False),
    ],
)
def test_which_recipe_fields_may_differ(field, value, compatible):
    other = dataclasses.replace(RECIPE, **{field: value})
    assert (pack_key(_mgu([]), other) == pack_key(_mgu([]), RECIPE)) == compatible


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


class _Toy(LanguageModel):
    """A unigram model with one of two faults, or none."""

    name = "toy"

    def __init__(self, fault: str) -> None:
        super().__init__(fault, Task(vocab=3, length=4))
        self.table = nn.Parameter(torch.zeros(3))
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros(()))

    def score_tokens(self, tokens, lengths):
        scores = torch.log_softmax(self.table, 0)[tokens[:, 1:]]
        if self.config == "branch" and scores.sum().item() > 0:
            return scores * 2
        if self.config == "statistics":
            self.count = self.count + 1
        return scores

    def next_log_prob(self, prefix):
        return torch.log_softmax(self.table, 0).expand(len(prefix), -1)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("branch", "vmap cannot run it"), ("statistics", "running statistics"), ("", "")],
)
def test_a_model_that_vmap_cannot_run_is_detected(monkeypatch, fault, reason):
    monkeypatch.setattr("lmzoo.train.packed.compatibility.template_model", lambda model: model)
    toy = _Toy(fault)
    assert reason in reason_not_packable(toy)
    assert bool(reason) == bool(reason_not_packable(toy))


def test_a_model_with_frozen_parameters_cannot_be_packed():
    model = tiny("DLM46")
    model.embedding.weight.requires_grad = False
    assert "frozen" in reason_not_packable(model)


@pytest.mark.parametrize(
    ("vocab", "width", "batch", "length", "pays"),
    [
        (251, 32, 100, 20, True),  # the main sweep
        (2000, 32, 100, 20, True),
        (4000, 16, 100, 20, True),
        (200, 128, 100, 20, True),
        (82, 128, 64, 100, True),  # characters
        (4000, 32, 100, 20, True),
        (14450, 16, 100, 20, True),
        (200, 256, 100, 100, False),  # activations are too large
        (14450, 48, 280, 20, False),  # words of Multi30k: the embedding table is too large
    ],
)
def test_packing_pays_where_it_was_measured_to_be_faster(vocab, width, batch, length, pays):
    """The measurements are in docs/performance.md."""
    task = Task(vocab=vocab, length=length)
    assert packing_pays(_mgu([], width=width), Recipe(batch=batch), task) is pays


@pytest.mark.parametrize(("width", "length", "pays"), [(32, 20, True), (64, 100, False)])
def test_packs_of_matrix_states_pay_up_to_a_smaller_size(width, length, pays):
    task = Task(vocab=100, length=length)
    for row in ("gla", "mamba", "rwkv7"):
        assert packing_pays(zoo.config(row, width=width), Recipe(batch=64), task) is pays
    assert packing_pays(zoo.config("gru", width=width), Recipe(batch=64), task)
