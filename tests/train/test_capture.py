"""Recorded steps end where steps done one by one end; what cannot be recorded is done as it is."""

import copy
import dataclasses
import logging
import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.train.capture import stepper
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import Training, fit
from tests.laws.fusing import agree, random_corpus
from tests.tiny import tiny

EPOCHS = 5
RECIPE_KINDS = [
    Recipe(batch=16, lr=0.05, clip=0.1, warmup=11),
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1, clip=None),
    Recipe(batch=16, optimiser="rmsprop", weight_decay=0.1),
    Recipe(batch=16, loss="sentence"),
    dataclasses.replace(RECIPES["published"], batch=16),
]


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "lmzoo.train.capture")
    return caplog


def _alone(monkeypatch, training, corpus, epochs=EPOCHS):
    with monkeypatch.context() as other:
        other.setattr(stepper, "recorder", lambda device: None)
        return _trained(Training(copy.deepcopy(training.model), training.recipe, 1), corpus, epochs)


def _trained(training, corpus, epochs=EPOCHS):
    for group in training.optimiser.param_groups:
        if isinstance(training.optimiser, torch.optim.RMSprop):
            group["foreach"] = True  # the default on CUDA
    assert list(fit(training, corpus, epochs))
    return training


def _training(corpus, recipe=RECIPE_KINDS[0], name="DLM46", **fields):
    fields = fields or {"width": 4, "emission": {"components": 3}}
    return Training(zoo.build(zoo.config(name, **fields), corpus.task, 1), recipe, 1)


def _same(one, other):
    agree(one, other)
    expected, found = one.dump()["optimiser"], other.dump()["optimiser"]
    assert found["param_groups"] == expected["param_groups"]
    assert all(type(group["lr"]) is float for group in found["param_groups"])  # not a tensor
    for i, state in expected["state"].items():
        for key, value in state.items():
            torch.testing.assert_close(found["state"][i][key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("recipe", RECIPE_KINDS, ids=lambda r: f"{r.optimiser}-{r.accumulate}")
def test_every_recipe_replayed_ends_where_it_would_have_ended(monkeypatch, corpus, taping, recipe):
    replayed = _training(corpus, recipe)
    expected = _alone(monkeypatch, replayed, corpus)
    _same(expected, _trained(replayed, corpus))
    steps = EPOCHS * math.ceil(60 / 16)
    assert taping.runs + taping.replays == steps
    assert taping.replays > steps / 3
    # Widths 4 and 8, of full batches and of the epoch's short one.
    assert 2 <= taping.recordings <= 4


def test_steps_with_sources_are_replayed(monkeypatch, taping):
    replayed = Training(tiny("seq2seq"), Recipe(batch=4), 1)
    pairs = random_corpus(replayed.model)
    expected = _alone(monkeypatch, replayed, pairs)
    agree(expected, _trained(replayed, pairs))
    assert taping.replays > 0


def test_weights_and_state_that_were_replaced_are_recorded_anew(monkeypatch, corpus, taping):
    replayed = _training(corpus)
    expected = _alone(monkeypatch, replayed, corpus, 8)
    _trained(replayed, corpus, 4)
    before = taping.recordings
    replayed.load(copy.deepcopy(replayed.dump()))  # the optimiser's state is other memory now
    _same(expected, _trained(replayed, corpus, 8))
    assert taping.recordings > before


def test_no_more_than_so_many_recordings_are_kept(monkeypatch, corpus, taping):
    monkeypatch.setattr(stepper, "MOST", 1)
    replayed = _training(corpus)
    expected = _alone(monkeypatch, replayed, corpus)
    _same(expected, _trained(replayed, corpus))
    assert taping.recordings == 1
    assert taping.replays


class _Asking(LanguageModel):
    """Asks the host which way to go."""

    name = "asking"

    def __init__(self, task):
        super().__init__(None, task)
        self.table = torch.nn.Parameter(torch.zeros(task.vocab))

    def score_tokens(self, tokens, lengths):
        scores = torch.log_softmax(self.table, 0)[tokens[:, 1:]]
        return scores * 1.5 if scores.sum().item() > 0 else scores

    def next_log_prob(self, prefix):
        return torch.log_softmax(self.table, 0).expand(len(prefix), -1)


def test_what_waits_for_the_device_is_trained_as_it_is(monkeypatch, corpus, taping, said):
    asking = Training(_Asking(corpus.task), RECIPE_KINDS[0], 1)
    expected = _alone(monkeypatch, asking, corpus)
    _same(expected, _trained(asking, corpus))
    assert taping.recordings == 0
    [line] = said.messages
    assert line == (
        "the steps of asking are not replayed: operation not permitted when stream is capturing: "
        "aten._local_scalar_dense.default"
    )


def test_what_draws_on_the_host_is_trained_as_it_is(corpus, taping, said):
    noisy = _training(corpus, Recipe(batch=16), "gpt", width=4, dropout=0.5)
    _trained(noisy, corpus, 3)
    assert taping.recordings == 0
    assert said.messages == [
        "the steps of transformer_decoder are not replayed: it draws from the host's generator"
    ]


def test_what_a_recorder_finds_while_warming_up_is_believed(corpus, taping, said, monkeypatch):
    run = taping.run
    monkeypatch.setattr(taping, "run", lambda work: run(work) or "it waits at x.py:3")
    _trained(_training(corpus), corpus)
    assert taping.recordings == 0
    assert said.messages == ["the steps of recurrent_lm are not replayed: it waits at x.py:3"]


def test_nothing_is_recorded_on_a_cpu(corpus):
    training = _training(corpus)
    assert stepper.recorder(torch.device("cpu")) is None
    assert not training.step.stepper.replays
    assert training.step.stepper.multiple == 1
