"""Replayed steps give the same result as executed ones; a step that cannot be recorded is run."""

import copy
import dataclasses
import logging
import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.laws_of_training.packing import assert_trainings_equal, random_corpus
from lmzoo.train import stepper
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import Training, fit
from tests.tiny import tiny
from tests.toy_model import Bigram
from tests.train.members import member

EPOCHS = 5
RECIPE_KINDS = [
    Recipe(batch=16, lr=0.05, clip=0.1, warmup=11),
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1, clip=None),
    Recipe(batch=16, optimiser="rmsprop", weight_decay=0.1),
    Recipe(batch=16, loss="sentence"),
    dataclasses.replace(RECIPES["published"], batch=16),
]


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "lmzoo.train.stepper")
    return caplog


def _train(training, corpus, epochs=EPOCHS):
    for group in training.optimiser.param_groups:
        if isinstance(training.optimiser, torch.optim.RMSprop):
            group["foreach"] = True  # the default on CUDA
    assert list(fit(training, corpus, epochs))
    return training


def _train_plainly(monkeypatch, training, corpus, epochs=EPOCHS):
    with monkeypatch.context() as patch:
        patch.setattr(stepper, "device_recorder", lambda device: None)
        return _train(Training(copy.deepcopy(training.model), training.recipe, 1), corpus, epochs)


def _training(corpus, recipe=RECIPE_KINDS[0]):
    return member(corpus, 1, recipe)


def _assert_equal(actual, expected):
    assert_trainings_equal(actual, expected)
    groups = actual.optimiser.param_groups
    assert all(type(group["lr"]) is float for group in groups)  # not a tensor


@pytest.mark.parametrize("recipe", RECIPE_KINDS, ids=lambda r: f"{r.optimiser}-{r.accumulate}")
def test_replay_does_not_change_the_result(monkeypatch, corpus, fake_recorder, recipe):
    replayed = _training(corpus, recipe)
    expected = _train_plainly(monkeypatch, replayed, corpus)
    _assert_equal(_train(replayed, corpus), expected)
    steps = EPOCHS * math.ceil(60 / 16)
    assert fake_recorder.runs + fake_recorder.replays == steps
    assert fake_recorder.replays > steps / 3
    # Widths 4 and 8, of full batches and of the smaller last batch of the epoch.
    assert 2 <= fake_recorder.recordings <= 4


def test_steps_with_sources_are_replayed(monkeypatch, fake_recorder):
    replayed = Training(tiny("seq2seq"), Recipe(batch=4), 1)
    pairs = random_corpus(replayed.model)
    expected = _train_plainly(monkeypatch, replayed, pairs)
    assert_trainings_equal(_train(replayed, pairs), expected)
    assert fake_recorder.replays > 0


def test_replaced_optimiser_state_is_recorded_again(monkeypatch, corpus, fake_recorder):
    replayed = _training(corpus)
    expected = _train_plainly(monkeypatch, replayed, corpus, 8)
    _train(replayed, corpus, 4)
    before = fake_recorder.recordings
    replayed.load(copy.deepcopy(replayed.dump()))  # the optimiser's state has new addresses
    _assert_equal(_train(replayed, corpus, 8), expected)
    assert fake_recorder.recordings > before


def test_the_number_of_recordings_is_limited(monkeypatch, corpus, fake_recorder):
    monkeypatch.setattr(stepper, "MAX_RECORDINGS", 1)
    replayed = _training(corpus)
    expected = _train_plainly(monkeypatch, replayed, corpus)
    _assert_equal(_train(replayed, corpus), expected)
    assert fake_recorder.recordings == 1
    assert fake_recorder.replays


class _Branching(Bigram):
    """Branches on a value in Python."""

    name = "branching"

    def score_tokens(self, tokens, lengths):
        scores = super().score_tokens(tokens, lengths)
        return scores * 1.5 if scores.sum().item() > 0 else scores


def test_a_model_that_synchronises_is_not_recorded(monkeypatch, corpus, fake_recorder, log):
    branching = Training(_Branching(None, corpus.task), RECIPE_KINDS[0], 1)
    expected = _train_plainly(monkeypatch, branching, corpus)
    _assert_equal(_train(branching, corpus), expected)
    assert fake_recorder.recordings == 0
    assert log.messages == [
        "the steps of branching are not replayed: operation not permitted when stream is "
        "capturing: aten._local_scalar_dense.default"
    ]


def test_a_model_that_draws_on_the_cpu_is_not_recorded(corpus, fake_recorder, log):
    model = zoo.build(zoo.config("gpt", width=4, dropout=0.5), corpus.task, 1)
    noisy = Training(model, Recipe(batch=16), 1)
    _train(noisy, corpus, 3)
    assert fake_recorder.recordings == 0
    reason = "it draws from the CPU's random generator"
    assert log.messages == [f"the steps of transformer_decoder are not replayed: {reason}"]


def test_a_reason_found_in_warm_up_stops_recording(corpus, fake_recorder, log, monkeypatch):
    run = fake_recorder.run
    monkeypatch.setattr(fake_recorder, "run", lambda work: run(work) or "it synchronises at x.py:3")
    _train(_training(corpus), corpus)
    assert fake_recorder.recordings == 0
    assert log.messages == ["the steps of recurrent_lm are not replayed: it synchronises at x.py:3"]


def test_a_run_alone_is_not_recorded_on_a_cpu(corpus):
    training = _training(corpus)
    assert stepper.device_recorder(torch.device("cpu")) is None
    assert not training.step.stepper.replays
    assert not training.step.stepper.few_shapes
