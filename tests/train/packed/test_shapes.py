"""Who fits with whom, and who may not be fused."""

import dataclasses

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.contract import LanguageModel, Task
from lmzoo.train.packed.shapes import packing_pays, reason_not_packable, shape, whole
from lmzoo.train.recipe import Recipe
from tests.tiny import tiny

RECIPE = Recipe()


def _mgu(cuts, **fields):
    return zoo.config("DLM46", cell={"name": "mgu", "cuts": cuts}, **fields)


@pytest.mark.parametrize("cuts", [[0], [1, 2], [3, 4, 5], [7], [3, 2, 4, 5]])
def test_a_path_that_equals_a_zero_weight_is_no_other_shape(cuts):
    assert shape(_mgu(cuts), RECIPE) == shape(_mgu([]), RECIPE)


@pytest.mark.parametrize("other", [_mgu([6]), _mgu([], width=8), _mgu([], starts=2)])
def test_what_is_not_a_number_is_another_shape(other):
    assert shape(other, RECIPE) != shape(_mgu([]), RECIPE)


@pytest.mark.parametrize(
    ("field", "value", "fits"),
    [
        ("lr", 0.5, True),
        ("clip", None, True),
        ("weight_decay", 0.1, True),
        ("warmup", 3, True),
        ("batch", 7, False),
        ("optimiser", "rmsprop", False),
        ("accumulate", "epoch", False),
        ("loss", "sentence", False),
    ],
)
def test_which_fields_of_a_recipe_may_differ(field, value, fits):
    other = dataclasses.replace(RECIPE, **{field: value})
    assert (shape(_mgu([]), other) == shape(_mgu([]), RECIPE)) == fits


def test_whole_reaches_into_parts_and_leaves_the_rest():
    config = zoo.config("backward_lm", reader={"name": "recurrent_lm", "cell": "mgu", "width": 7})
    cut = zoo.config(
        "backward_lm",
        reader={"name": "recurrent_lm", "cell": {"name": "mgu", "cuts": [0, 6]}, "width": 7},
    )
    assert whole(config) == config
    assert whole(cut).reader.cell.cuts == {"carry"}
    assert dataclasses.replace(whole(cut).reader, cell=config.reader.cell) == config.reader


def test_a_count_model_and_a_noisy_one_say_why():
    assert "closed form" in reason_not_packable(tiny("ngram_count"))
    assert "noise" in reason_not_packable(tiny("gpt"))
    assert reason_not_packable(tiny("gpt", dropout=0.0)) == ""


class _Toy(LanguageModel):
    """Scores that come from one table, and a wrong turn that a test may take."""

    name = "toy"

    def __init__(self, wrong: str) -> None:
        super().__init__(wrong, Task(vocab=3, length=4))
        self.table = nn.Parameter(torch.zeros(3))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(()))

    def score_tokens(self, tokens, lengths):
        scores = torch.log_softmax(self.table, 0)[tokens[:, 1:]]
        if self.config == "branch" and scores.sum().item() > 0:
            return scores * 2
        if self.config == "statistics":
            self.seen = self.seen + 1
        return scores

    def next_log_prob(self, prefix):
        return torch.log_softmax(self.table, 0).expand(len(prefix), -1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("branch", "vmap cannot run it"), ("statistics", "running statistics"), ("", "")],
)
def test_a_model_that_cannot_be_fused_is_found_by_trying(monkeypatch, wrong, said):
    monkeypatch.setattr("lmzoo.train.packed.shapes.host_of", lambda model: model)
    toy = _Toy(wrong)
    assert said in reason_not_packable(toy)
    assert bool(said) == bool(reason_not_packable(toy))


def test_frozen_parameters_are_refused():
    model = tiny("DLM46")
    model.embedding.weight.requires_grad = False
    assert "frozen" in reason_not_packable(model)


@pytest.mark.parametrize(
    ("vocab", "width", "batch", "length", "together"),
    [
        (251, 32, 100, 20, True),  # the main sweep
        (2000, 32, 100, 20, True),
        (4000, 16, 100, 20, True),
        (200, 128, 100, 20, True),
        (82, 128, 64, 100, True),  # characters
        (4000, 32, 100, 20, True),
        (14450, 16, 100, 20, True),
        (200, 256, 100, 100, False),  # the rest of a step is too large
        (14450, 48, 280, 20, False),  # Multi30k's words: the table is
    ],
)
def test_sides_that_were_measured_as_the_faster(vocab, width, batch, length, together):
    """docs/performance.md, the tables of `--fuse auto`."""
    task = Task(vocab=vocab, length=length)
    assert packing_pays(_mgu([], width=width), Recipe(batch=batch), task) is together
