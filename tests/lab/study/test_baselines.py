"""The count-model baselines are in every study that needs them, once, with fixed configs."""

import dataclasses

import pytest

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import EntropyFloor, open_corpus
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.study import Point
from lmzoo.trainables import resolve as baselines_module
from lmzoo.trainables.resolve import baselines, resolve
from sweeps import cath, ngrams
from tests.lab.sweep.local_sweep import outcome, sweep

LABELS = ["unigram count", "Kneser-Ney 5-gram"]
WILD = Point("wild type", "DLM46")


@pytest.fixture
def small(study):
    return dataclasses.replace(study, points=(WILD,), samples=1)


def _labels(points):
    return [p.label for p in points]


def test_options_of_the_other_points_do_not_change_the_baselines(study, corpus, corpus_fields):
    """Common fields, a parameter budget and searched model fields do not change their runs."""
    plain = resolve(study, corpus, corpus_fields)[-2:]
    fields = {path: value for path, value in study.fields.items() if path != "model.width"}
    options = {"parameters": 5000, "search": {"recipe.lr": None, "model.starts": None}}
    changed = dataclasses.replace(study, fields={**fields, "model.norm": "l2"}, **options)
    points = resolve(changed, corpus, corpus_fields)
    assert [p.id for p in points[-2:]] == [p.id for p in plain]
    assert not any(p.search_space for p in points[-2:])
    assert points[0].model.width != 4
    assert points[0].model.norm == "l2"


@pytest.mark.parametrize("script", [cath, ngrams])
def test_a_study_with_a_baseline_of_its_own_has_it_once(script, study, corpus, corpus_fields):
    """The first script has a unigram model among its points, the second has both baselines."""
    own = tuple(p for p in script.STUDY.points if p.row == "ngram_count")
    changed = dataclasses.replace(study, points=(WILD, *own))
    points = resolve(changed, corpus, corpus_fields)
    counts = [p.model for p in points if not p.search_space and p.label != "wild type"]
    assert [counts.count(zoo.config("ngram_count", order=n)) for n in (1, 5)] == [1, 1]
    added = LABELS[1:] if script is cath else []
    assert _labels(points) == [WILD.label, *_labels(own), *added]
    assert _labels([p for p in points if p.baseline]) == added  # the others are points of the study


@pytest.mark.parametrize("floor", [None, EntropyFloor(1.0, 1.0)])
def test_exact_densities_on_texts_get_baselines(floor, corpus):
    """Whether the entropy of the text is known or not."""
    corpus = dataclasses.replace(corpus, floor=floor)
    expected = {"DLM46": LABELS, "DLM55": [], "seq2seq": [], "gru_vae": []}
    found = {row: _labels(baselines([Point(row, row)], corpus)) for row in expected}
    assert found == expected
    assert _labels(baselines([Point("DLM55", "DLM55"), WILD], corpus)) == LABELS
    assert not baselines([WILD], open_corpus("parity")), "a task has none"


def test_count_models_ignore_a_common_width_but_unknown_fields_are_refused(
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


def test_baselines_are_added_to_a_store_without_them_and_no_run_is_repeated(
    small, corpus, corpus_fields, tmp_path, monkeypatch
):
    path = tmp_path / "toy"
    with monkeypatch.context() as without:
        without.setattr(baselines_module, "BASELINES", ())
        assert sweep(small, corpus, corpus_fields, path)
    before, chosen = outcome(path), read_json(path / STUDY)["chosen"]
    times = {p: p.stat().st_mtime_ns for p in path.glob("*/records.ndjson")}
    assert sweep(small, corpus, corpus_fields, path)
    after, study = outcome(path), read_json(path / STUDY)
    assert {run: after[run] for run in before} == before
    assert {p: p.stat().st_mtime_ns for p in times} == times
    assert [point["label"] for point in study["points"]] == [WILD.label, *LABELS]
    assert {point: study["chosen"][point] for point in chosen} == chosen
    assert len(after) - len(before) == small.seeds * 2
    unigram, fivegram = (
        {r["token"] for run in study["chosen"][p["id"]]["runs"] for r in after[run] if "token" in r}
        for p in study["points"][1:]
    )
    assert len(unigram) == len(fivegram) == 1, "a count model depends on no seed"
    assert unigram != fivegram
