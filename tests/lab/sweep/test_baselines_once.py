"""A closed-form model is estimated once for all seeds of a sweep; its numbers do not change."""

import dataclasses
import itertools
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
    # Other tests of this process may have filled it.
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
    events = Counter()
    for records in outcome(tmp_path).values():
        events.update(record["event"] for record in records)
    assert events["test"] == small.seeds * (1 + BASELINES)
    assert counted == {1: 1, 5: 1, "evaluations": 3 * BASELINES}  # of train, valid and test


def test_one_worker_takes_all_seeds_of_a_baseline(small, corpus, corpus_fields, tmp_path):
    with closing(StudyStore(tmp_path)) as store:
        points = resolve(small, corpus, corpus_fields)
        planner = Planner(small, points, store)
        fleet = Fleet(planner, Packer(corpus, None))
        for i in range(20):
            fleet.exchange(Exchange(f"w{i}"), live=20, now=0.0)
    sizes_of_counts = []
    others = 0
    for worker in fleet.workers.values():
        models = {run.config["model"]["name"] for run in worker.training.values()}
        if models == {"ngram_count"}:
            sizes_of_counts.append(len(worker.training))
        elif models:
            others += 1
    assert sizes_of_counts == [small.seeds] * BASELINES
    assert others, "the runs of other models are shared"


def counts_of(order, corpus):
    config = zoo.config("ngram_count", order=order)
    return zoo.build(config, corpus.task)


@pytest.fixture
def half(corpus):
    """Return the corpus with every second sequence of training."""
    ids = corpus.train.ids[::2]
    lengths = corpus.train.lengths[::2]
    train = dataclasses.replace(corpus.train, ids=ids, lengths=lengths)
    return dataclasses.replace(corpus, train=train)


def test_other_data_and_other_configs_have_estimates_of_their_own(corpus, half):
    losses = set()
    for order, data in itertools.product((1, 2), (corpus, half)):
        estimate = load_estimate(counts_of(order, corpus), data)
        losses.add(estimate.train)
    assert len(losses) == 4


def test_few_estimates_are_kept(corpus, half):
    for order, data in itertools.product((1, 2, 3), (corpus, half)):
        load_estimate(counts_of(order, corpus), data)
    assert len(closed_form._ESTIMATES) == CAPACITY


def test_a_test_without_an_estimate_is_the_same_and_keeps_none(corpus):
    model = counts_of(1, corpus)
    load_estimate(model, corpus)
    kept = evaluate_test(model, corpus)
    closed_form._ESTIMATES.clear()
    again = evaluate_test(model, corpus)
    assert again.token == kept.token
    assert not closed_form._ESTIMATES
