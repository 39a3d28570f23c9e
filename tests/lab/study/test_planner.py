"""The planner gives each point the same budget, deterministically, and repeats no work."""

import dataclasses
import json
import shutil
from collections import defaultdict

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.point_planner import MOST_AGAIN
from lmzoo.lab.study.study_store import SETTINGS, StudyStore
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.local_sweep import outcome, sweep

BASELINES = 2
"""Number of baselines, which are not tuned."""


def test_every_point_has_its_samples_and_its_seeds(undisturbed):
    configs = [read_json(p) for p in undisturbed.glob("*/config.json")]
    by_stage = defaultdict(list)
    for config in configs:
        by_stage[config["point"]["label"], config["stage"]].append(config)
    assert len(by_stage) == 3 * 2 + BASELINES
    first = []
    for (_, stage), runs in by_stage.items():
        seeds = [r["seed"] for r in runs]
        if stage == "tune":
            assert 4 <= len(runs) <= 4 + MOST_AGAIN
            assert len({*seeds}) <= 2, "its own, and that of the settings measured again"
            first.append(max(seeds, key=seeds.count))
        else:
            assert sorted(seeds) == [1, 2]
    assert len({1, 2, *first}) - 2 == 3, "each point has its own"
    again = [runs for (_, stage), runs in by_stage.items() if len({r["seed"] for r in runs}) > 1]
    assert len([runs for runs in again if runs[0]["stage"] == "tune"]) <= 1, "one in seven, or one"


def test_only_confirm_runs_are_tested_and_once_each(undisturbed):
    for run, records in outcome(undisturbed).items():
        stage = read_json(undisturbed / run / "config.json")["stage"]
        assert sum(r["event"] == "test" for r in records) == (stage == "confirm")


def test_the_best_setting_of_each_point_is_confirmed(undisturbed):
    study = read_json(undisturbed / STUDY)
    records = outcome(undisturbed)
    for point in study["points"][:-BASELINES]:
        chosen = study["chosen"][point["id"]]
        finished = [
            config["setting"]
            for p in undisturbed.glob("*/config.json")
            if (config := read_json(p))["point"]["id"] == point["id"]
            and config["stage"] == "tune"
            and any(r.get("status") == "finished" for r in records[p.parent.name])
        ]
        assert chosen["setting"] in finished
        confirmed = [read_json(undisturbed / run / "config.json") for run in chosen["runs"]]
        assert all(config["setting"] == chosen["setting"] for config in confirmed)


@pytest.mark.parametrize(
    ("slots", "seed"),
    [(5, 2), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((2, 1), (5, 3)))],
)
def test_the_order_of_execution_does_not_change_the_records(
    slots, seed, tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = tmp_path / "toy"
    assert sweep(study, corpus, corpus_fields, path, slots=slots, seed=seed)
    assert outcome(path) == outcome(undisturbed)
    assert (path / STUDY).read_text() == (undisturbed / STUDY).read_text()


@pytest.mark.parametrize("steps", [10, pytest.param(3, marks=pytest.mark.slow)])
def test_repeated_deaths_do_not_change_the_records(
    steps, tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = tmp_path / "toy"
    for life in range(200):
        if sweep(study, corpus, corpus_fields, path, slots=3, seed=life, steps=steps):
            break
    assert outcome(path) == outcome(undisturbed)


def test_a_finished_sweep_has_nothing_pending(study, corpus, corpus_fields, undisturbed):
    store = StudyStore(undisturbed)
    planner = Planner(study, resolve(study, corpus, corpus_fields), store)
    store.close()
    assert planner.done
    assert list(planner.pending()) == []


@pytest.mark.parametrize(("change", "runs"), [({"seeds": 3}, 3 + BASELINES), ({"samples": 6}, 3)])
def test_a_larger_budget_only_adds_runs(
    change, runs, tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = shutil.copytree(undisturbed, tmp_path / "toy")
    before = outcome(path)
    assert sweep(dataclasses.replace(study, **change), corpus, corpus_fields, path)
    after = outcome(path)
    assert {run: after[run] for run in before} == before
    new_confirm_runs = 6 if "samples" in change else 0  # only where the best setting changed
    assert runs <= len(after) - len(before) <= runs + new_confirm_runs


def test_more_epochs_continue_from_the_checkpoints(
    tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = shutil.copytree(undisturbed, tmp_path / "toy")
    before = outcome(path)
    longer = dataclasses.replace(study, epochs=6)
    assert sweep(longer, corpus, corpus_fields, path)
    after = outcome(path)
    left = 0
    for run, records in before.items():
        assert all(record in after[run] for record in records)
        pruned = any(r.get("status") == "pruned" for r in records)
        last_epoch = max(r["epoch"] for r in after[run])
        left += not pruned and last_epoch == 4 and _is_needed(path, run)
    assert left <= 3 * MOST_AGAIN, "other settings may be measured again"


def test_a_torn_line_of_settings_is_ignored_and_computed_again(
    tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = tmp_path / "toy"
    sweep(study, corpus, corpus_fields, path, steps=2)
    (path / SETTINGS).write_bytes((path / SETTINGS).read_bytes()[:-20])
    assert sweep(study, corpus, corpus_fields, path)
    assert outcome(path) == outcome(undisturbed)
    assert all(json.loads(line) for line in (path / SETTINGS).read_text().splitlines())


def test_a_second_sweep_on_a_store_is_refused(tmp_path):
    first = StudyStore(tmp_path / "toy")
    with pytest.raises(UserError, match=r"in use by process \d+ on "):
        StudyStore(tmp_path / "toy")
    first.close()
    StudyStore(tmp_path / "toy").close()


def test_a_store_of_another_schema_version_is_refused(tmp_path):
    (tmp_path / STUDY).write_text('{"schema": 99}')
    with pytest.raises(UserError, match="version 99"):
        StudyStore(tmp_path)


def _is_needed(path, run) -> bool:
    config, study = read_json(path / run / "config.json"), read_json(path / STUDY)
    return config["stage"] == "tune" or run in study["chosen"][config["point"]["id"]]["runs"]
