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


def labels_of(points):
    return [point.label for point in points]


@pytest.fixture
def resolved(study, corpus, corpus_fields):
    """Return a function that resolves the points of the study with other fields."""
    return lambda **fields: resolve(dataclasses.replace(study, **fields), corpus, corpus_fields)


def test_options_of_the_other_points_do_not_change_the_baselines(study, resolved):
    """Common fields, a parameter budget and searched model fields do not change their runs."""
    fields = study.fields | {"model.norm": "l2"}
    del fields["model.width"]
    search = {"recipe.lr": None, "model.starts": None}
    *_, unigram, fivegram = resolved()
    first, *_, same_unigram, same_fivegram = resolved(fields=fields, search=search, parameters=5000)
    assert same_unigram.id == unigram.id
    assert same_fivegram.id == fivegram.id
    assert not same_unigram.search_space
    assert not same_fivegram.search_space
    assert first.model.width != 4
    assert first.model.norm == "l2"


@pytest.mark.parametrize(("script", "added"), [(cath, LABELS[1:]), (ngrams, [])])
def test_a_study_with_a_baseline_of_its_own_has_it_once(script, added, resolved):
    """The first script has a unigram model among its points, the second has both baselines."""
    own = tuple(point for point in script.STUDY.points if point.row == "ngram_count")
    points = resolved(points=(WILD, *own))
    assert labels_of(points) == [WILD.label, *labels_of(own), *added]
    # The others are points of the study.
    assert [point.label for point in points if point.baseline] == added
    models = [point.model for point in points]
    assert models.count(zoo.config("ngram_count", order=1)) == 1
    assert models.count(zoo.config("ngram_count", order=5)) == 1


@pytest.fixture(params=[None, EntropyFloor(1.0, 1.0)], ids=["unknown", "known"])
def text(request, corpus):
    """A text whose entropy is known, or not."""
    return dataclasses.replace(corpus, floor=request.param)


@pytest.mark.parametrize(
    ("row", "expected"), [("DLM46", LABELS), ("DLM55", []), ("seq2seq", []), ("gru_vae", [])]
)
def test_exact_densities_on_texts_get_baselines(row, expected, text):
    assert labels_of(baselines([Point(row, row)], text)) == expected


def test_one_exact_density_is_enough_for_baselines(text):
    points = [Point("DLM55", "DLM55"), WILD]
    assert labels_of(baselines(points, text)) == LABELS


def test_a_task_has_no_baselines():
    assert not baselines([WILD], open_corpus("parity"))


COUNT = Point("count", "ngram_count", {"order": 2})


def test_count_models_ignore_a_common_width(resolved):
    wild, count, *_ = resolved(points=(WILD, COUNT), fields={"model.width": 6})
    assert wild.model.width == 6
    assert count.model.order == 2


def test_a_common_field_that_a_point_does_not_have_is_refused(resolved):
    fields = {"model.width": 6, "model.alpha": 0.5}
    with pytest.raises(UserError, match="point 'wild type': no field 'alpha'"):
        resolved(points=(WILD, COUNT), fields=fields)


def test_a_common_field_that_no_point_has_is_refused(resolved):
    with pytest.raises(UserError, match="point 'count': no field 'width'"):
        resolved(points=(COUNT,), fields={"model.width": 6})


class Store:
    """What is in a store, and when its records were written."""

    def __init__(self, path) -> None:
        self.records = outcome(path)
        self.study = read_json(path / STUDY)
        self.times = {file: file.stat().st_mtime_ns for file in path.glob("*/records.ndjson")}

    def losses_of(self, point) -> set[float]:
        """Return the test losses of the runs of a point."""
        found = set()
        for run in self.study["chosen"][point["id"]]["runs"]:
            found.update(record["token"] for record in self.records[run] if "token" in record)
        return found


@pytest.fixture
def stores(small, corpus, corpus_fields, tmp_path, monkeypatch):
    """The store of a sweep without baselines, and of the same sweep with them."""
    with monkeypatch.context() as without:
        without.setattr(baselines_module, "BASELINES", ())
        assert sweep(small, corpus, corpus_fields, tmp_path)
    before = Store(tmp_path)
    assert sweep(small, corpus, corpus_fields, tmp_path)
    return before, Store(tmp_path)


def test_baselines_are_added_to_a_store_without_them(stores, small):
    before, after = stores
    assert [point["label"] for point in after.study["points"]] == [WILD.label, *LABELS]
    assert len(after.records) - len(before.records) == small.seeds * 2


def test_where_baselines_are_added_no_run_and_no_choice_is_repeated(stores):
    before, after = stores
    assert before.records.items() <= after.records.items()
    assert before.times.items() <= after.times.items()
    assert before.study["chosen"].items() <= after.study["chosen"].items()


def test_a_count_model_depends_on_no_seed(stores):
    _, after = stores
    _, unigram, fivegram = after.study["points"]
    assert len(after.losses_of(unigram)) == 1
    assert len(after.losses_of(fivegram)) == 1
    assert after.losses_of(unigram) != after.losses_of(fivegram)
