"""The planner gives each point the same budget, deterministically, and repeats no work."""

import re
import shutil
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace

import pytest

from lmzoo import Point
from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import CONFIG, RECORDS, SETTINGS, STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import ReadOnlyStudyStore, StudyStore
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.fake_runs import open_fake_run
from tests.lab.sweep.local_sweep import outcome, sweep

BASELINES = 2
"""Number of baselines, which are not tuned."""


def test_only_confirm_runs_of_the_best_setting_are_tested_and_once_each(undisturbed):
    for run, records in outcome(undisturbed).items():
        config = read_json(undisturbed / run / CONFIG)
        tests = [record for record in records if record["event"] == "test"]
        assert len(tests) == (config["stage"] == "confirm")


def test_the_chosen_setting_is_one_whose_tune_run_has_finished(undisturbed):
    study = read_json(undisturbed / STUDY)
    finished = defaultdict(list)
    settings = {}
    for run, records in outcome(undisturbed).items():
        config = read_json(undisturbed / run / CONFIG)
        settings[run] = config["setting"]
        ended = any(record.get("status") == "finished" for record in records)
        if ended and config["stage"] == "tune":
            finished[config["point"]["id"]].append(config["setting"])
    for point in study["points"][:-BASELINES]:
        chosen = study["chosen"][point["id"]]
        assert chosen["setting"] in finished[point["id"]]
        for run in chosen["runs"]:
            assert settings[run] == chosen["setting"]


@pytest.mark.parametrize(
    ("change", "least", "most"),
    [
        ({"seeds": 3}, 3 + BASELINES, 3 + BASELINES),
        # New confirm runs where the best setting changed, and runs that measure a point again.
        ({"samples": 6}, 3, 3 + 6 + 3),
    ],
)
def test_a_larger_budget_only_adds_runs(
    change, least, most, tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = shutil.copytree(undisturbed, tmp_path / "toy")
    before = outcome(path)
    assert sweep(replace(study, **change), corpus, corpus_fields, path)
    after = outcome(path)
    added = len(after) - len(before)
    assert before.items() <= after.items()
    assert least <= added <= most


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (SETTINGS, b'"setting"', b'"betting"'),
        (RECORDS, b'"valid_token"', b'"valid_tojen"'),
        (RECORDS, b'"valid_token": 2', b'"valid_token": "2", "x": 2'),
        (RECORDS, b'"epoch": 1', b'"epoch": "1"'),
        (RECORDS, b'"event": "epoch"', b'"event": ["epoch"]'),
        (RECORDS, b'"status": "finished"', b'"status": "finisher"'),
        (CONFIG, b'"stage"', b'"stale"'),
        (CONFIG, b'"vocab": 1', b'"vocab": "1", "x": 1'),
    ],
)
def test_a_misspelt_key_of_a_file_without_checksums_is_named_and_trained_again(
    file, old, new, tmp_path, study, corpus, corpus_fields, undisturbed, caplog
):
    """Files of versions before have none; `test_archive.py` damages those that have."""
    path = shutil.copytree(undisturbed, tmp_path / "toy")
    damaged = first_with(old, sorted(path.rglob(file)))
    text = damaged.read_bytes().replace(old, new, 1)
    # Without the checksums of its lines.
    damaged.write_bytes(re.sub(rb', "crc": "[0-9a-f]{8}"', b"", text))
    if file != SETTINGS:
        assert damaged.parent.name in "".join(load_study(path).damaged)
    assert sweep(study, corpus, corpus_fields, path)
    assert f"{damaged}" in caplog.text
    assert outcome(path) == outcome(undisturbed)
    assert not load_study(path).damaged


def first_with(text, files):
    """Return the first file that contains a text."""
    for file in files:
        if text in file.read_bytes():
            return file
    raise AssertionError(text)


def test_a_start_reads_each_run_once_and_study_json_is_written_for_best_settings_only(
    study, corpus, corpus_fields, tmp_path, monkeypatch
):
    calls = Counter()

    def count(name):
        inner = getattr(Store, name)

        def counted(self, file, *args, **options):
            calls[name, file] += 1
            return inner(self, file, *args, **options)

        monkeypatch.setattr(Store, name, counted)

    count("read")
    count("write")
    count("append")
    assert sweep(study, corpus, corpus_fields, tmp_path, open_run=open_fake_run)
    points = resolve(study, corpus, corpus_fields)
    # Once at the start, and once for each best setting.
    assert calls["write", STUDY] <= 1 + len(points)
    assert len(read_json(tmp_path / STUDY)["chosen"]) == len(points)
    calls.clear()
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(study, points, store)
    assert planner.done
    assert [*planner.pending()] == []
    runs = len(list(tmp_path.glob(f"*/{RECORDS}")))
    assert calls["read", RECORDS] == runs
    assert calls["read", SETTINGS] == 1
    assert calls["append", SETTINGS] == 0, "it is known"


def table(path) -> list[dict]:
    folder = load_study(path)
    columns = ["label", "epoch", "loss", "missing", "pruned", "diverged"]
    ranked = rank_points(folder.runs, folder.events, folder.study)
    return ranked.select(columns).to_dicts()


@pytest.fixture
def one_point(study):
    return replace(study, points=study.points[:1], seeds=1)


@pytest.fixture
def sweep_epochs(corpus, corpus_fields, tmp_path):

    def run(study, epochs: int, steps: int = 10**6) -> bool:
        changed = replace(study, epochs=epochs)
        return sweep(changed, corpus, corpus_fields, tmp_path / "toy", slots=2, steps=steps)

    return run


def test_returning_to_a_smaller_budget_restores_its_results(sweep_epochs, one_point, tmp_path):
    path = tmp_path / "toy"
    # The first rung is after the smaller budget.
    late = replace(one_point, grace=5, pruner="halving")
    assert sweep_epochs(late, 4)
    study = read_json(path / STUDY)
    before = table(path)
    assert {row["epoch"] for row in before} == {4}
    assert not any(row["pruned"] for row in before)
    assert sweep_epochs(late, 10)
    after = table(path)
    assert {row["epoch"] for row in after} == {10}
    assert any(row["pruned"] for row in after), "no run was pruned, so nothing was tested"
    longer = outcome(path)
    assert sweep_epochs(late, 4)
    assert outcome(path) == longer, "a run was trained again"
    assert read_json(path / STUDY) == study
    assert table(path) == before


def test_the_table_of_an_interrupted_longer_sweep_shows_which_points_are_missing(
    sweep_epochs, study, corpus, corpus_fields, tmp_path
):
    path = tmp_path / "toy"
    two = study.points[:2]
    study = replace(study, points=two, search={}, epochs=3)
    assert sweep_epochs(study, 1)
    before = table(path)
    # The sweep dies after one epoch.
    assert not sweep_epochs(study, 3, steps=1)
    assert table(path) == before, "no run is tested at three epochs yet"
    assert not sweep_epochs(study, 3, steps=6)
    missing = {row["label"] for row in table(path) if row["missing"]}
    points = resolve(study, corpus, corpus_fields)
    planner = Planner(study, points, ReadOnlyStudyStore(path))
    pending = set()
    for point, *_ in planner.pending():
        pending.add(point.point.display_label)
    assert missing == pending
    assert missing
    assert {row["epoch"] for row in table(path)} == {3}
    assert sweep_epochs(study, 3)
    assert not any(row["missing"] for row in table(path))


def test_a_budget_below_every_tested_one_is_refused(sweep_epochs, one_point, tmp_path):
    path = tmp_path / "toy"
    assert sweep_epochs(one_point, 3)
    before = outcome(path)
    message = "^point '[^']+': a run was trained for 3 epochs and not tested at 2, "
    with pytest.raises(UserError, match=message) as caught:
        sweep_epochs(one_point, 2)
    assert "\n" not in str(caught.value)
    assert outcome(path) == before
    assert sweep_epochs(one_point, 3)
    assert outcome(path) == before


def test_tune_runs_of_a_count_model_count_for_every_budget_and_none_is_measured_again(
    sweep_epochs, study, corpus, corpus_fields, tmp_path
):
    """A count model has one epoch, whose number is the budget of its first sweep."""
    row = {"order": 3, "smoothing": "add_alpha"}
    # A model of counts with something to search.
    smoothed = Point("add-alpha", "ngram_count", row, search={"model.alpha": None})
    study = replace(study, points=(smoothed,), fields={"corpus.length": 10})
    points = resolve(study, corpus, corpus_fields)
    planner = Planner(study, points, ReadOnlyStudyStore(tmp_path / "new"))
    _, pending, *_ = next(planner.pending())
    assert pending == study.samples + study.seeds
    with pytest.raises(UserError, match="no sampler 'zz'"):  # also where nothing is searched
        Planner(replace(study, sampler="zz"), points, planner.store)
    assert sweep_epochs(study, 2)
    with pytest.raises(UserError, match=r"point '[^']+': .* not tested at 1, "):
        sweep_epochs(study, 1)  # refused in the confirm stage, so the tune runs have counted
