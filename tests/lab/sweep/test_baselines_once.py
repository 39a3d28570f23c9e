"""A closed-form model is estimated once for all seeds of a sweep; its numbers do not change."""

import dataclasses
from collections import Counter
from contextlib import closing

import pytest

from lmzoo import zoo
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import Point
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Exchange
from lmzoo.models.count import NgramCount
from lmzoo.train import closed_form
from lmzoo.train.closed_form import CAPACITY, evaluate_test, load_estimate
from lmzoo.trainables.resolve import resolve

from .local_fleet import fleet_sweep
from .local_sweep import outcome

BASELINES = 2
"""The toy corpus has no known entropy: a unigram and a 5-gram."""


@pytest.fixture(autouse=True)
def no_estimates(monkeypatch):
    monkeypatch.setattr(closed_form, "_ESTIMATES", type(closed_form._ESTIMATES)())


@pytest.fixture
def small(study):
    points = (Point("wild type", "DLM46"),)
    return dataclasses.replace(study, points=points, samples=1, seeds=5, epochs=1)


@pytest.fixture
def counted(monkeypatch, corpus):
    """Counts the fits to the corpus by order, and the evaluations of count models."""
    counts = Counter()

    def fit(model, tokens, lengths, valid_loss=None, original=NgramCount.fit_closed_form):
        counts[model.config.order] += len(tokens) == len(corpus.train)  # not those of the audit
        original(model, tokens, lengths, valid_loss)

    def evaluate(model, part, original=closed_form.evaluate):
        counts["evaluations"] += model.closed_form
        return original(model, part)

    monkeypatch.setattr(NgramCount, "fit_closed_form", fit)
    monkeypatch.setattr(closed_form, "evaluate", evaluate)
    return counts


def test_each_baseline_of_a_sweep_is_computed_once(small, corpus, corpus_fields, tmp_path, counted):
    fleet_sweep(small, corpus, corpus_fields, tmp_path)
    tests = [r for records in outcome(tmp_path).values() for r in records if r["event"] == "test"]
    assert len(tests) == small.seeds * (1 + BASELINES)
    assert counted == {1: 1, 5: 1, "evaluations": 3 * BASELINES}  # of train, valid and test


def test_one_worker_takes_all_seeds_of_a_baseline(small, corpus, corpus_fields, tmp_path):
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(small, resolve(small, corpus, corpus_fields), store)
        fleet = Fleet(planner, Packer(corpus, None))
        for i in range(20):
            fleet.exchange(Exchange(f"w{i}"), live=20, now=0.0)
    packs = [[*worker.training.values()] for worker in fleet.workers.values() if worker.training]
    counts = [pack for pack in packs if pack[0].config["model"]["name"] == "ngram_count"]
    assert [len(pack) for pack in counts] == [small.seeds] * BASELINES
    assert len(packs) > BASELINES, "the runs of other models are shared"


def test_other_data_and_other_configs_have_estimates_of_their_own(corpus):
    train = dataclasses.replace(
        corpus.train, ids=corpus.train.ids[::2], lengths=corpus.train.lengths[::2]
    )
    half = dataclasses.replace(corpus, train=train)
    models = [zoo.build(zoo.config("ngram_count", order=n), corpus.task) for n in (1, 2)]
    losses = {load_estimate(model, data).train for model in models for data in (corpus, half)}
    assert len(losses) == 4
    assert len(closed_form._ESTIMATES) == CAPACITY
    load_estimate(zoo.build(zoo.config("ngram_count", order=3), corpus.task), corpus)
    assert len(closed_form._ESTIMATES) == CAPACITY
    load_estimate(models[0], corpus)
    kept = evaluate_test(models[0], corpus)
    closed_form._ESTIMATES.clear()
    assert evaluate_test(models[0], corpus).token == kept.token
    assert not closed_form._ESTIMATES
