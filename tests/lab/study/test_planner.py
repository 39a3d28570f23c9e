"""The planner gives each point the same budget, deterministically, and repeats no work."""

import dataclasses
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


def test_only_confirm_runs_of_the_best_setting_are_tested_and_once_each(undisturbed):
    study, records = read_json(undisturbed / STUDY), outcome(undisturbed)
    configs = {run: read_json(undisturbed / run / "config.json") for run in records}
    for run, own in records.items():
        assert sum(r["event"] == "test" for r in own) == (configs[run]["stage"] == "confirm")
    for point in study["points"][:-BASELINES]:
        chosen = study["chosen"][point["id"]]
        finished = [
            config["setting"]
            for run, config in configs.items()
            if (config["point"]["id"], config["stage"]) == (point["id"], "tune")
            and any(r.get("status") == "finished" for r in records[run])
        ]
        assert chosen["setting"] in finished
        assert all(configs[run]["setting"] == chosen["setting"] for run in chosen["runs"])


@pytest.mark.parametrize(
    ("slots", "seed", "steps"),
    [(5, 2, 10**6), (3, 0, 10), pytest.param(3, 0, 3, marks=pytest.mark.slow)],
)
def test_order_and_deaths_do_not_change_the_records(
    slots, seed, steps, tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = tmp_path / "toy"
    for life in range(200):
        if sweep(study, corpus, corpus_fields, path, slots=slots, seed=seed + life, steps=steps):
            break
    assert outcome(path) == outcome(undisturbed)
    assert (path / STUDY).read_text() == (undisturbed / STUDY).read_text()


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


def test_damaged_lines_of_settings_are_computed_again(
    tmp_path, study, corpus, corpus_fields, undisturbed
):
    sweep(study, corpus, corpus_fields, tmp_path, steps=12)
    path = tmp_path / SETTINGS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\xff{torn\n", *lines[2:], b'{"point":']))
    assert sweep(study, corpus, corpus_fields, tmp_path)
    assert outcome(tmp_path) == outcome(undisturbed)


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
