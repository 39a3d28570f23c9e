"""The floor of seriousness: in every table that needs it, once, whatever is asked of others."""

import dataclasses

import pytest

from lmzoo import zoo
from lmzoo.errors import UserError
from lmzoo.models.count.smoothing import Smoothing
from lmzoo.store.records import STUDY, read_json
from lmzoo.sweep import Point
from lmzoo.sweep import baselines as floors
from lmzoo.sweep.resolve import named, resolve
from sweeps import cath, ngrams

from .byhand import outcome, sweep

LABELS = ["unigram count", "Kneser-Ney 5-gram"]
WILD = Point("wild type", "DLM46")


@pytest.fixture
def small(study):
    return dataclasses.replace(study, points=(WILD,), samples=1)


def _labels(points):
    return [p.label for p in points]


def test_they_are_the_two_counts_after_the_studys_own_points(study, corpus, corpus_fields):
    points = resolve(study, corpus, corpus_fields)
    assert _labels(points)[-2:] == LABELS
    assert [p.floor for p in points] == [False] * 3 + [True] * 2
    orders = [(p.model.order, p.model.smoothing) for p in points[-2:]]
    assert orders == [(1, Smoothing.KNESER_NEY), (5, Smoothing.KNESER_NEY)]


def test_what_is_asked_of_the_others_is_nothing_to_them(study, corpus, corpus_fields):
    """Common fields, a budget of parameters and a search of model fields leave their runs alone."""
    plain = resolve(study, corpus, corpus_fields)[-2:]
    fields = {path: value for path, value in study.fields.items() if path != "model.width"}
    asked = {"parameters": 5000, "search": {"recipe.lr": None, "model.starts": None}}
    changed = dataclasses.replace(study, fields={**fields, "model.norm": "l2"}, **asked)
    points = resolve(changed, corpus, corpus_fields)
    assert [p.id for p in points[-2:]] == [p.id for p in plain]
    assert not any(p.space for p in points[-2:])
    assert points[0].model.width != 4
    assert points[0].model.norm == "l2"


@pytest.mark.parametrize("script", [cath, ngrams])
def test_a_study_that_has_them_has_them_once(script, study, corpus, corpus_fields):
    """The scripts spell them: the first has its own unigram, the second both."""
    own = tuple(p for p in script.STUDY.points if p.row == "ngram_count")
    having = dataclasses.replace(study, points=(WILD, *own))
    points = resolve(having, corpus, corpus_fields)
    counts = [p.model for p in points if not p.space and p.label != "wild type"]
    assert [counts.count(zoo.config("ngram_count", order=n)) for n in (1, 5)] == [1, 1]
    labels = _labels(points)
    added = LABELS[1:] if script is cath else []
    assert labels == [WILD.label, *(p.label for p in own), *added]
    assert [p.model.order for p in points if p.floor] == [1, 5]


@pytest.mark.parametrize(
    ("rows", "known", "expected"),
    [
        (["DLM46"], False, LABELS),
        (["DLM46"], True, []),
        (["DLM55"], False, []),
        (["seq2seq"], False, []),
        (["gru_vae"], False, []),
        (["DLM55", "DLM46"], False, LABELS),
    ],
)
def test_they_stand_where_exact_densities_are_ranked_on_data_of_unknown_entropy(
    rows, known, expected, corpus
):
    from lmzoo.data.corpus import EntropyFloor

    corpus = dataclasses.replace(corpus, floor=EntropyFloor(1.0, 1.0) if known else None)
    found = floors.baselines([Point(row, row) for row in rows], corpus)
    assert _labels(found) == expected


def test_they_stand_whatever_points_are_asked_for(study, corpus):
    assert named(study, corpus, "cut 4") == {"cut 4", *LABELS}
    assert named(study, corpus, LABELS[0]) == {*LABELS}


def test_a_width_for_all_is_not_asked_of_counts_but_a_misspelling_is_refused(
    study, corpus, corpus_fields
):
    count = Point("count", "ngram_count", {"order": 2})
    fields = {"model.width": 6, "model.alpha": 0.5}
    both = dataclasses.replace(study, points=(WILD, count), fields=fields)
    with pytest.raises(UserError, match="point 'wild type': no field 'alpha'"):
        resolve(both, corpus, corpus_fields)
    both = dataclasses.replace(both, fields={"model.width": 6})
    wild, second, *_ = resolve(both, corpus, corpus_fields)
    assert (wild.model.width, second.model.order) == (6, 2)
    alone = dataclasses.replace(both, points=(count,))
    with pytest.raises(UserError, match="point 'count': no field 'width'"):
        resolve(alone, corpus, corpus_fields)


def test_a_store_of_before_gets_them_and_nothing_is_trained_again(
    small, corpus, corpus_fields, tmp_path, monkeypatch
):
    path = tmp_path / "toy"
    with monkeypatch.context() as before:
        before.setattr(floors, "BASELINES", ())
        assert sweep(small, corpus, corpus_fields, path)
    old, chosen = outcome(path), read_json(path / STUDY)["chosen"]
    stamps = {p: p.stat().st_mtime_ns for p in path.glob("*/records.ndjson")}
    assert sweep(small, corpus, corpus_fields, path)
    new, told = outcome(path), read_json(path / STUDY)
    assert {run: new[run] for run in old} == old
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    assert _labels_of(told) == [WILD.label, *LABELS]
    assert {point: told["chosen"][point] for point in chosen} == chosen
    assert len(new) - len(old) == small.seeds * 2
    unigram, fivegram = ({_test_loss(new[run]) for run in _runs(told, n)} for n in (1, 2))
    assert len(unigram) == len(fivegram) == 1, "counting depends on no seed"
    assert unigram != fivegram


def _labels_of(told):
    return [point["label"] for point in told["points"]]


def _runs(told, number):
    return told["chosen"][told["points"][number]["id"]]["runs"]


def _test_loss(records):
    return next(r["token"] for r in records if r["event"] == "test")
