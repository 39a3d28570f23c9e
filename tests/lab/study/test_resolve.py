"""Points become runs: equal points are merged, invalid fields are refused in one line."""

import dataclasses
from contextlib import closing

import pytest

from lmzoo import Point, Study
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.resolve import resolve


def test_equal_points_become_one_point_with_an_alias(study, corpus, corpus_fields):
    points = [p for p in resolve(study, corpus, corpus_fields) if not p.baseline]
    assert [p.label for p in points] == ["wild type", "cut 4", "cut 3,2,4,5"]
    assert points[2].aliases == ["cut 2,7"]


def test_common_fields_and_own_fields_are_both_applied(study, corpus, corpus_fields):
    wild, cut, *_ = resolve(study, corpus, corpus_fields)
    assert wild.model.width == cut.model.width == 4
    assert wild.model.emission.components == 3
    assert [str(c) for c in cut.model.cell.cuts] == ["state_to_candidate"]
    assert wild.recipe.batch == 16


def test_the_run_depends_on_the_setting_and_the_seed(study, corpus, corpus_fields):
    wild = resolve(study, corpus, corpus_fields)[0]
    runs = {
        wild.run_config({"recipe.lr": lr}, seed)["run"] for lr in (0.01, 0.02) for seed in (0, 1)
    }
    assert len(runs) == 4
    assert wild.run_config({"recipe.lr": 0.01}, 0)["run"] in runs


def test_the_point_id_depends_on_the_search_ranges_and_not_on_the_budget(
    study, corpus, corpus_fields
):
    def ids(changed):
        return [p.id for p in resolve(changed, corpus, corpus_fields) if not p.baseline]

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
def test_an_invalid_study_is_refused_in_one_line(study, corpus, corpus_fields, change, message):
    with pytest.raises(UserError, match=message) as caught:
        resolve(dataclasses.replace(study, **change), corpus, corpus_fields)
    assert "\n" not in str(caught.value)


def test_a_model_without_next_tokens_is_refused_on_a_task_that_scores_some_tokens():
    fields = {"name": "parity", "train": 8, "valid": 4, "test": 4}
    task = open_corpus(fields)
    points = (Point("recurrent", "gru"), Point("autoencoder", "gru_autoencoder"))
    study = Study(name="toy", question="?", points=points)
    with pytest.raises(UserError, match=r"^point 'autoencoder': .* no distribution of the next to"):
        resolve(study, task, fields)
    assert resolve(study, task, fields, ["recurrent"])[0].label == "recurrent"


def test_only_a_needed_point_must_accept_the_common_fields(study, corpus, corpus_fields):
    """A transformer has no field `starts`."""
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


def test_a_field_that_no_point_accepts_is_named_in_the_error(study, corpus, corpus_fields):
    """If only the baselines are needed, all points are left out."""
    bogus = dataclasses.replace(study, fields={**study.fields, "model.bogus": 1})
    with pytest.raises(UserError, match=r"point .*: no field 'bogus'"):
        resolve(bogus, corpus, corpus_fields, set())


def test_a_baseline_under_another_label_is_always_planned(study, corpus, corpus_fields, tmp_path):
    own = Point("counts", "ngram_count", {"order": 1})
    both = dataclasses.replace(study, points=(*study.points, own))
    assert sum(p.baseline for p in resolve(both, corpus, corpus_fields)) == 1, "it is compared"
    points = resolve(both, corpus, corpus_fields, {"cut 4"})
    assert sum(p.baseline for p in points) == 2
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(study, points, store, {"cut 4"})
        assert [p.point.label for p in planner.points][:2] == ["cut 4", "counts"]
        assert len(planner.points) == 3


def test_study_json_lists_the_points_that_were_left_out(study, corpus, corpus_fields, tmp_path):
    both = dataclasses.replace(study, points=(*study.points, Point("minGPT", "DLM40")))
    with closing(StudyStore(tmp_path)) as store:
        points = resolve(both, corpus, corpus_fields, {"wild type"})
        Planner(both, points, store, {"wild type"})
    assert read_json(tmp_path / STUDY)["left_out"] == ["minGPT"]
