"""Points become runs: equal functions once, wrong words refused in one line."""

import dataclasses
from contextlib import closing

import pytest

from lmzoo.errors import UserError
from lmzoo.search_space import FloatRange
from lmzoo.store.records import STUDY, read_json
from lmzoo.sweep import Point
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore


def test_equal_functions_are_one_point_with_an_alias(study, corpus, corpus_fields):
    points = [p for p in resolve(study, corpus, corpus_fields) if not p.floor]
    assert [p.label for p in points] == ["wild type", "cut 4", "cut 3,2,4,5"]
    assert points[2].aliases == ["cut 2,7"]


def test_fields_common_and_own_both_arrive(study, corpus, corpus_fields):
    wild, cut, *_ = resolve(study, corpus, corpus_fields)
    assert wild.model.width == cut.model.width == 4
    assert wild.model.emission.components == 3
    assert [str(c) for c in cut.model.cell.cuts] == ["state_to_candidate"]
    assert wild.recipe.batch == 16


def test_the_setting_decides_the_run_and_so_does_the_seed(study, corpus, corpus_fields):
    wild = resolve(study, corpus, corpus_fields)[0]
    runs = {
        wild.configured({"recipe.lr": lr}, seed, corpus)["run"]
        for lr in (0.01, 0.02)
        for seed in (0, 1)
    }
    assert len(runs) == 4
    assert wild.configured({"recipe.lr": 0.01}, 0, corpus)["run"] in runs


def test_another_budget_is_the_same_point_another_range_is_not(study, corpus, corpus_fields):
    def ids(changed):
        return [p.id for p in resolve(changed, corpus, corpus_fields) if not p.floor]

    more = dataclasses.replace(study, epochs=40, samples=9, seeds=7)
    assert ids(more) == ids(study)
    wider = dataclasses.replace(study, search={"recipe.lr": FloatRange(1e-4, 1.0, log=True)})
    assert not set(ids(wider)) & set(ids(study))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": (Point("x", "DLM99"),)}, "no row of the zoo 'DLM99'"),
        ({"points": (Point("x", "DLM46", {"cell.cuts": [9]}),)}, "no cut 9"),
        ({"points": (Point("x", "DLM46", {"cell.cuts": [6, 7]}),)}, "h = 0 at every step"),
        ({"points": (Point("x", "DLM46", {"widht": 3}),)}, "no field 'widht'"),
        ({"fields": {"width": 3}}, "field 'width' does not start with"),
        ({"search": {"recipe.batch": None}}, "no search range is known for 'recipe.batch'"),
        ({"search": {"recipe.speed": FloatRange(0.0, 1.0)}}, "no field 'recipe.speed'"),
        ({"recipe": "fast"}, "no recipe 'fast'"),
        ({"points": ()}, "has no points"),
    ],
)
def test_wrong_words_are_refused_in_one_line(study, corpus, corpus_fields, change, message):
    with pytest.raises(UserError, match=message) as caught:
        resolve(dataclasses.replace(study, **change), corpus, corpus_fields)
    assert "\n" not in str(caught.value)


def test_a_field_that_a_point_left_out_lacks_is_no_matter(study, corpus, corpus_fields):
    """A transformer has no `starts`; but a point that is needed must have the field."""
    both = dataclasses.replace(
        study,
        points=(*study.points, Point("minGPT", "DLM40")),
        fields={"model.width": 4, "model.starts": 2},
    )
    points = resolve(both, corpus, corpus_fields, {"wild type"})
    assert "minGPT" not in {label for point in points for label in point.labels}
    assert {"wild type", "cut 4"} <= {point.label for point in points}
    for needed in (None, {"minGPT"}):
        with pytest.raises(UserError, match="point 'minGPT': no field 'starts'"):
            resolve(both, corpus, corpus_fields, needed)


def test_a_field_that_no_point_has_is_named(study, corpus, corpus_fields):
    """Where only floors are needed all points are left out; then the cause is what one said."""
    bogus = dataclasses.replace(study, fields={**study.fields, "model.bogus": 1})
    with pytest.raises(UserError, match=r"point .*: no field 'bogus'"):
        resolve(bogus, corpus, corpus_fields, set())


def test_a_floor_that_a_study_calls_otherwise_is_needed_as_any(
    study, corpus, corpus_fields, tmp_path
):
    own = Point("counts", "ngram_count", {"order": 1})
    points = resolve(dataclasses.replace(study, points=(*study.points, own)), corpus, corpus_fields)
    assert sum(p.floor for p in points) == 2
    with closing(StudyStore(tmp_path)) as store:
        agenda = Planner(study, points, corpus, store, {"cut 4"})
        assert [p.point.label for p in agenda.points][:2] == ["cut 4", "counts"]
        assert len(agenda.points) == 3


def test_a_study_says_what_it_left_out(study, corpus, corpus_fields, tmp_path):
    both = dataclasses.replace(study, points=(*study.points, Point("minGPT", "DLM40")))
    with closing(StudyStore(tmp_path)) as store:
        points = resolve(both, corpus, corpus_fields, {"wild type"})
        Planner(both, points, corpus, store, {"wild type"})
    assert read_json(tmp_path / STUDY)["left_out"] == ["minGPT"]
