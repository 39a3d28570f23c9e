"""The count-model baselines are in every study that needs them, once, with fixed configs."""

from dataclasses import replace

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
    return replace(study, points=(WILD,), samples=1)


def labels_of(points):
    return [point.label for point in points]


@pytest.fixture
def resolved(study, corpus, corpus_fields):
    """Return a function that resolves the points of the study with other fields."""

    def points_of(**fields):
        changed = replace(study, **fields)
        return resolve(changed, corpus, corpus_fields)

    return points_of


def test_options_of_the_other_points_do_not_change_the_baselines(study, resolved):
    """Common fields, a parameter budget and searched model fields do not change their runs."""
    fields = study.fields | {"model.norm": "l2"}
    del fields["model.width"]
    search = {"recipe.lr": None, "model.starts": None}
    before = resolved()
    after = resolved(fields=fields, search=search, parameters=5000)
    for old, new in zip(before[-2:], after[-2:], strict=True):
        assert new.id == old.id
        assert not new.search_space
    # The width follows from 5,000 parameters.
    first = after[0].model
    assert first.width != 4
    assert first.norm == "l2"


FIVE_GRAM = LABELS[1:]


@pytest.mark.parametrize(("script", "added"), [(cath, FIVE_GRAM), (ngrams, [])])
def test_a_study_with_a_baseline_of_its_own_has_it_once(script, added, resolved):
    """The first script has a unigram model among its points, the second has both baselines."""
    points = [WILD]
    for point in script.STUDY.points:
        if point.row == "ngram_count":
            points.append(point)
    found = resolved(points=tuple(points))
    assert labels_of(found) == labels_of(points) + added
    # The others are points of the study.
    assert [point.label for point in found if point.baseline] == added
    models = [point.model for point in found]
    for order in (1, 5):
        baseline = zoo.config("ngram_count", order=order)
        assert models.count(baseline) == 1


KNOWN = EntropyFloor(1.0, 1.0)


@pytest.fixture(params=[None, KNOWN], ids=["unknown", "known"])
def text(request, corpus):
    """A text whose entropy is known, or not."""
    return replace(corpus, floor=request.param)


def baselines_beside(text, *rows):
    points = [Point(row, row) for row in rows]
    return labels_of(baselines(points, text))


def test_exact_densities_on_texts_get_baselines(text):
    assert baselines_beside(text, "DLM46") == LABELS


@pytest.mark.parametrize("row", ["DLM55", "seq2seq", "gru_vae"])
def test_what_is_no_exact_density_gets_none(row, text):
    assert baselines_beside(text, row) == []


def test_one_exact_density_is_enough_for_baselines(text):
    assert baselines_beside(text, "DLM55", "DLM46") == LABELS


def test_a_task_has_no_baselines():
    assert not baselines([WILD], open_corpus("parity"))


COUNT = Point("count", "ngram_count", {"order": 2})
BOTH = (WILD, COUNT)
WIDER = {"model.width": 6}


def test_count_models_ignore_a_common_width(resolved):
    wild, count, *_ = resolved(points=BOTH, fields=WIDER)
    assert wild.model.width == 6
    assert count.model.order == 2


def test_a_common_field_that_a_point_does_not_have_is_refused(resolved):
    fields = WIDER | {"model.alpha": 0.5}
    with pytest.raises(UserError, match="point 'wild type': no field 'alpha'"):
        resolved(points=BOTH, fields=fields)


def test_a_common_field_that_no_point_has_is_refused(resolved):
    with pytest.raises(UserError, match="point 'count': no field 'width'"):
        resolved(points=(COUNT,), fields=WIDER)


class Store:
    """What is in a store, and when its records were written."""

    def __init__(self, path) -> None:
        self.records = outcome(path)
        self.study = read_json(path / STUDY)
        self.times = {}
        for file in path.glob("*/records.ndjson"):
            self.times[file] = file.stat().st_mtime_ns

    def losses_of(self, point) -> set[float]:
        """Return the test losses of the runs of a point."""
        found = set()
        chosen = self.study["chosen"][point["id"]]
        for run in chosen["runs"]:
            for record in self.records[run]:
                if "token" in record:
                    found.add(record["token"])
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
    # Before, the study had the wild type only.
    labels = [point["label"] for point in after.study["points"]]
    assert labels == [WILD.label] + LABELS
    assert len(after.records) == len(before.records) + 2 * small.seeds


def test_where_baselines_are_added_no_run_and_no_choice_is_repeated(stores):
    before, after = stores
    assert before.records.items() <= after.records.items()
    assert before.times.items() <= after.times.items()
    chosen = before.study["chosen"]
    assert chosen.items() <= after.study["chosen"].items()


def test_a_count_model_depends_on_no_seed(stores):
    _, after = stores
    _, unigram, fivegram = after.study["points"]
    assert len(after.losses_of(unigram)) == 1
    assert len(after.losses_of(fivegram)) == 1
    assert after.losses_of(unigram) != after.losses_of(fivegram)
