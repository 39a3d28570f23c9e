"""Points become runs: fields, sizes, names; equal points are one, bad ones are refused."""

import dataclasses
import itertools
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from lmzoo import Point, Study, zoo
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange
from lmzoo.cells.base import CELLS
from lmzoo.contract import LanguageModel, Task
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.store.records import CONFIG, STUDY, RunFolder, epoch_records, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.laws import learned as learning
from lmzoo.laws.probes import disturbed
from lmzoo.trainables.parameter_budget import count_parameters, fit_width
from lmzoo.trainables.resolve import (
    check_settings,
    corpus_config,
    resolve,
    store_folder,
    store_name,
)
from lmzoo.trainables.rows import check_points
from sweeps import gru_factorial
from tests.cases import cases
from tests.factorial import MGU, mgu
from tests.lab.sweep.local_sweep import sweep
from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import sentences as sentences
from tests.toy_study import study as study

STARTS = tuple(Point(str(n), "DLM46", {"starts": n}) for n in (1, 2))


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


def test_the_point_id_depends_on_the_ranges_and_not_on_the_budget(study, corpus, corpus_fields):
    def ids(changed):
        return [p.id for p in resolve(changed, corpus, corpus_fields) if not p.baseline]

    more = dataclasses.replace(study, epochs=40, samples=9, seeds=7)
    assert ids(more) == ids(study)
    wider = dataclasses.replace(study, search={"recipe.lr": FloatRange(1e-4, 1.0, log=True)})
    assert not set(ids(wider)) & set(ids(study))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fields": {"width": 3}}, "field 'width' does not start with"),
        ({"search": {"recipe.batch": None}}, "no search range is known for 'recipe.batch'"),
        ({"search": {"recipe.speed": FloatRange(0.0, 1.0)}}, "no field 'recipe.speed'"),
        ({"recipe": "fast"}, "no recipe 'fast'"),
        ({"points": ()}, "has no points"),
        (
            {"points": STARTS, "search": {"model.starts": None}},
            "point '2' differs from '1' in model.starts only",
        ),
    ],
)
def test_an_invalid_study_is_refused_in_one_line(study, corpus, corpus_fields, change, message):
    with pytest.raises(UserError, match=message) as caught:
        resolve(dataclasses.replace(study, **change), corpus, corpus_fields)
    assert "\n" not in str(caught.value)


@cases("trainables/cases.toml", "wrong_points", "row, fields, message")
def test_a_wrong_point_is_refused_in_one_line(study, corpus, corpus_fields, row, fields, message):
    wrong = dataclasses.replace(study, points=(Point("x", row, fields),))
    with pytest.raises(UserError, match=message) as caught:
        resolve(wrong, corpus, corpus_fields)
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
    points = (*study.points, Point("minGPT", "DLM40"))
    fields = {"model.width": 4, "model.starts": 2}
    both = dataclasses.replace(study, points=points, fields=fields)
    points = resolve(both, corpus, corpus_fields, {"wild type"})
    assert "minGPT" not in {label for point in points for label in point.labels}
    assert {"wild type", "cut 4"} <= {point.label for point in points}
    for needed in (None, {"minGPT"}):
        with pytest.raises(UserError, match="point 'minGPT': no field 'starts'"):
            resolve(both, corpus, corpus_fields, needed)


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


CUTS = (Point("wild type", "DLM46"), Point("cut 4", "DLM46", {"cell.cuts": [4]}))
ROWS = (Point("LSTM", "DLM26"), Point("GRU", "DLM44"))
WHOLE = (Point("MGRU", "DLM47"), Point("cut", "DLM47", {"cell": {"name": "mgru", "mutations": 4}}))


def test_a_setting_that_replaces_what_points_compare_is_refused():
    sizes = (Point("E=8", "DLM46", {"width": 8}), Point("E=16", "DLM46"))
    for points, path, label in [
        (CUTS, "model.cell", "'cut 4'"),
        (CUTS, "model.cell.cuts", "'cut 4'"),
        (ROWS, "model.cell", "'LSTM', 'GRU'"),
        (WHOLE, "model.cell.carry", "'cut'"),
        (sizes, "model.width", "'E=8'"),
    ]:
        with pytest.raises(UserError, match=rf"--set {path}: .*\({label}\); drop the option"):
            check_settings(Study(name="toy", question="?", points=points), {path: 1})


def test_other_settings_are_accepted():
    cuts = ("model.width", "model.norm", "recipe.lr", "corpus.cell", "model.cellar")
    for points, paths in (
        (CUTS, cuts),
        (ROWS, ["model.emission.components"]),
        (CUTS[:1], ["model.cell"]),
    ):
        for path in paths:
            check_settings(Study(name="toy", question="?", points=points), {path: 1})


COSINE = {"recipe.schedule": "cosine"}


def first_run(study, corpus, corpus_fields, setting):
    point = resolve(study, corpus, corpus_fields)[0]
    return point.run_config(setting, 1)


def test_the_length_decides_a_run_only_if_its_rate_falls(study, corpus, corpus_fields):
    for fields, same in (({}, True), (COSINE, False)):
        ids = {
            first_run(
                dataclasses.replace(study, epochs=epochs, fields={**study.fields, **fields}),
                corpus, corpus_fields, {"recipe.lr": 0.01},
            )["run"]
            for epochs in (4, 8)
        }  # fmt: skip
        assert (len(ids) == 1) == same


@pytest.mark.parametrize("path", ["recipe.schedule", "recipe.schedule_epochs", "recipe.final_lr"])
def test_runs_at_different_rates_are_not_compared(path, study, corpus, corpus_fields):
    bounds = FloatRange(0.1, 0.5)
    study = dataclasses.replace(study, search={path: bounds}, fields={**study.fields, **COSINE})
    with pytest.raises(UserError, match=f"{path} is searched, .*; add --pruner none"):
        resolve(study, corpus, corpus_fields)


def test_a_constant_rate_is_searched_beside_falling_ones(study, corpus, corpus_fields):
    """The fields that a constant rate cannot have are dropped, so its settings are one run."""
    schedules, shares = ("constant", "cosine"), FloatRange(0.1, 0.2)
    search = {"recipe.schedule": Choice(schedules), "recipe.final_lr": shares}
    fields = {**study.fields, **COSINE}
    study = dataclasses.replace(study, search=search, pruner="none", fields=fields)
    pairs = itertools.product(schedules, (shares.low, shares.high))
    settings = [dict(zip(search, pair, strict=True)) for pair in pairs]
    assert len({first_run(study, corpus, corpus_fields, own)["run"] for own in settings}) == 3


def test_runs_train_as_long_as_their_schedule(study, corpus, corpus_fields, tmp_path):
    fields = {**study.fields, **COSINE}
    study = dataclasses.replace(
        study, points=study.points[:1], fields=fields, epochs=2, samples=2, seeds=1, pruner="none"
    )
    assert sweep(study, corpus, corpus_fields, tmp_path)
    stages = set()
    for path in tmp_path.glob(f"*/{CONFIG}"):
        config, records = read_json(path), RunFolder(path.parent).records()
        if config["model"]["name"] != "ngram_count":
            assert config["recipe"]["schedule_epochs"] == len(epoch_records(records)) == 2
            stages.add(config["stage"])
    assert stages == {"tune", "confirm"}
    # The length of the schedule is 2 by now: a study of three epochs has other runs and points.
    longer = dataclasses.replace(study, epochs=3)
    ids = {resolve(s, corpus, corpus_fields)[0].id for s in (study, longer)}
    assert len(ids) == 2
    set_to_two = dataclasses.replace(longer, fields={**fields, "recipe.schedule_epochs": 2})
    with pytest.raises(UserError, match="ends before the budget of 3 epochs"):
        resolve(set_to_two, corpus, corpus_fields)


TASK = Task(vocab=50, length=6)
BUDGET = 5000


@pytest.mark.parametrize("name", ["rnn_lm", "chain_slot_ngram", "transformer_decoder"])
def test_the_width_is_the_largest_within_the_budget(name):
    fitted = fit_width(zoo.config(name), TASK, BUDGET)
    wider = zoo.config(name, width=fitted.width + 1)  # type: ignore[attr-defined]
    assert count_parameters(fitted, TASK) <= BUDGET < count_parameters(wider, TASK)


def test_the_width_of_a_wrapped_model_is_fitted_and_one_without_a_width_is_unchanged():
    fitted = fit_width(zoo.config("backward_lm"), TASK, BUDGET)
    wider = zoo.config("backward_lm", reader={"width": fitted.reader.width + 1})  # type: ignore[attr-defined]
    assert count_parameters(fitted, TASK) <= BUDGET < count_parameters(wider, TASK)
    for name in ("ngram_count", "pcfg"):
        assert fit_width(zoo.config(name), TASK, 10) == zoo.config(name)


def test_a_budget_that_no_width_has_is_refused():
    with pytest.raises(UserError, match="recurrent_lm has more than 50 parameters at width 2"):
        fit_width(zoo.config("rnn_lm"), TASK, 50)
    with pytest.raises(UserError, match="recurrent_lm has less than 1,000,000,000,000 parameters"):
        fit_width(zoo.config("rnn_lm"), TASK, 10**12)


def test_the_name_of_a_store_is_readable_short_and_of_one_file():
    assert store_name("toy", {"name": "captions", "split": "a"}, "012345") == "toy-captions"
    slugs = {
        "data/My Sentences.txt.gz": "my_sentences",
        "Ünï.txt": "n",
        "a" * 60 + ".txt": "a" * 24,
        "словарь": "",
    }
    for path, slug in slugs.items():
        name = store_name("toy", {"name": "text", "path": path}, "0123456789")
        assert name.split("-") == ["toy", "text", *([slug] if slug else []), "012345"]


def test_a_text_has_one_store_whatever_its_path_is(tmp_path):
    def store(path: str, fingerprint: str = "0123456789", study: str = "toy") -> Path:
        return store_folder(tmp_path, study, {"name": "text", "path": path}, fingerprint)

    first = store("a/my.txt")
    first.mkdir()
    assert store("./other.txt") == first
    assert store("a/my.txt", "1123456789") != first
    assert store("a/my.txt", study="to") != first
    assert store_folder(tmp_path, "toy", {"name": "text"}, "0123456789") == tmp_path / "toy-text"


def test_every_point_of_the_factorial_study_is_a_distinct_mutant_that_reads_its_input():
    fields = corpus_config(gru_factorial.STUDY, gru_factorial.STUDY.fields)
    corpus = open_corpus({**fields, "train": 10, "valid": 1, "test": 1})
    points = [p for p in resolve(gru_factorial.STUDY, corpus, fields) if not p.baseline]
    models = [point.model for point in points]
    assert not any(point.aliases for point in points)
    assert not any(CELLS.build(model.cell, 1, 2).input_blind for model in models)
    assert {(model.width, model.emission.components) for model in models} == {(16, 16)}
    rows = [type(model.cell).__qualname__ for model in models]
    assert rows == ["MGU.Config"] * 92 + ["MGRU.Config"] * 148
    expected = {frozenset(np.array(MGU)[pattern].tolist()) for pattern in mgu()}
    assert {frozenset(map(str, model.cell.cuts)) for model in models[:92]} == expected


def test_what_does_not_learn_is_said_and_not_paid_for(
    study, corpus, corpus_fields, monkeypatch, tmp_path
):
    def without_gradient(model: LanguageModel) -> LanguageModel:
        changed = disturbed(model)
        next(changed.parameters()).register_hook(torch.zeros_like)
        return changed

    points = resolve(study, corpus, corpus_fields)
    assert check_points(points) == []
    with monkeypatch.context() as patch:
        patch.setattr("lmzoo.trainables.rows.CHECK_SECONDS", -1.0)
        (line,) = check_points(points)
    assert line == f"{len(points)} of {len(points)} points are not checked for dead parameters"
    paid = fit_width(points[0].model, corpus.task, 700)
    with monkeypatch.context() as patch:
        patch.setattr(learning, "disturbed", without_gradient)
        learning._learned.cache_clear()
        lines = check_points(points)
        free = fit_width(points[0].model, corpus.task, 700)
    learning._learned.cache_clear()
    assert "parameters do not learn: " in lines[0]
    assert free.width > paid.width
    with closing(StudyStore(tmp_path / "toy")) as store:
        Planner(study, points, store)
    assert read_json(tmp_path / "toy" / STUDY)["data"]["warnings"] == lines


def test_a_point_that_changes_nothing_is_said(study, corpus, corpus_fields, monkeypatch):
    same = learning.Learned(frozenset(), "equal")
    monkeypatch.setattr("lmzoo.trainables.rows.learned", lambda *_: same)
    wild, cut, *_ = resolve(study, corpus, corpus_fields)
    assert check_points([wild, cut]) == [f"{cut.display_label} computes the same as wild type"]
