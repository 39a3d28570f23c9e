"""Which field mattered: a planted one is found, and the runs survive the way into Optuna."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest

from lmzoo.analysis.fanova import shares
from lmzoo.analysis.load import load
from lmzoo.analysis.search_ranges import ranges
from lmzoo.analysis.tuning import between_points, read_tuning
from lmzoo.cli.importance import render_importance
from lmzoo.errors import UserError

ROOT = Path(__file__).parents[2]
POINTS = {"full": 0.0, "gate": 5.0, "carry": -2.0, "write": 1.0, "bias": 9.0}


def tune(made, loss, samples=12):
    """Tune runs of five points that differ by far more than any setting does."""
    rng = np.random.default_rng(0)
    for point, level in POINTS.items():
        for index in range(samples):
            lr, width = 10 ** rng.uniform(-4, -1), int(rng.integers(8, 257))
            clip = [1.0, None][int(rng.integers(2))]
            setting = {"lr": lr, "model.width": width, "recipe.clip": clip}
            made.run(point, index, 20 + level + loss(lr, width, clip), setting=setting)
        made.study["points"].append({"id": point, "label": f"cut {point}", "aliases": []})
    made.write()
    return made


@pytest.mark.parametrize(
    ("field", "loss"),
    [
        ("lr", lambda lr, width, clip: abs(np.log10(lr) + 2.5)),
        ("model.width", lambda lr, width, clip: width / 100),
        ("recipe.clip", lambda lr, width, clip: float(clip is None)),
    ],
)
def test_the_field_that_was_planted_has_nearly_all(made, field, loss):
    folder = load(tune(made, loss).path)
    tuning = read_tuning(folder)
    frame = shares(tuning, folder.study["search"], resamples=6)
    assert frame["field"][0] == field
    assert frame["share"][0] > 0.8
    assert frame["low"][0] > frame["high"][1]
    assert between_points(tuning) > 0.9


def test_two_fields_that_only_matter_together_have_little_alone(made):
    def loss(lr, width, clip):
        return np.sign(np.log10(lr) + 2.5) * np.sign(width - 132)

    folder = load(tune(made, loss, samples=50).path)
    frame = shares(read_tuning(folder), folder.study["search"], resamples=0)
    assert frame["share"].sum() < 0.4
    assert frame["low"].null_count() == 3


def test_losses_are_compared_where_all_runs_still_were(made):
    """A run pruned at epoch 1 is worst there; at the end it would be missing."""
    tune(made, lambda lr, width, clip: lr, samples=3)
    run = made.run("full", 99, 40.0, status="pruned", setting={"lr": 0.1})
    path = made.records(run)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[-1].replace('"epoch": 3', '"epoch": 1')]) + "\n")
    diverged = made.run("full", 98, None, setting={"lr": 0.1})
    tuning = read_tuning(load(made.path))
    assert (tuning.at, tuning.fields) == (1, ("lr",))
    value = dict(tuning.runs.select("run", "value").iter_rows())
    assert value[run] == pytest.approx(40.2)  # loss + (3 epochs - 1) / 10
    assert value[diverged] is None
    text = render_importance(made.path, width=200)
    assert "17 tune runs, of which 15 finished, 1 pruned, 1 diverged" in text
    with pytest.raises(UserError, match="not every tune run has a loss at epoch 3; up to 1"):
        read_tuning(load(made.path), at=3)


def test_one_point_alone(made):
    tune(made, lambda lr, width, clip: lr, samples=3)
    assert len(read_tuning(load(made.path), point="cut gate").runs) == 3
    with pytest.raises(UserError, match="no point 'gate'; known: cut full, cut gate"):
        render_importance(made.path, point="gate")


def test_runs_are_sorted_by_point_and_run(made):
    """The bootstrap of `shares` draws runs by position, so their order decides its interval."""
    tune(made, lambda lr, width, clip: lr)
    runs = read_tuning(load(made.path)).runs.select("label", "run").rows()
    assert runs == sorted(runs)


@pytest.mark.parametrize("name", ["tuned.db", "tuned.journal"])
def test_the_export_is_what_optuna_reads(made, tmp_path, name):
    tune(made, lambda lr, width, clip: lr, samples=3)
    pruned = made.run("gate", 99, 40.0, status="pruned", setting={"lr": 0.1})
    file = tmp_path / name
    assert "16 runs written" in render_importance(made.path, at=1, export=file)
    if name.endswith(".db"):
        storage = f"sqlite:///{file}"
    else:
        backend = optuna.storages.journal.JournalFileBackend(str(file))
        storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name="toy", storage=storage)
    by_run = {trial.user_attrs["run"]: trial for trial in study.trials}
    assert len(by_run) == 16
    one = by_run["gate-tune-2"]
    config = json.loads(made.config("gate-tune-2").read_text())
    assert one.params == {"point": "cut gate", **config["setting"]}
    assert list(one.intermediate_values) == [1, 2, 3]
    assert one.value == min(one.intermediate_values.values())
    assert by_run[pruned].state is optuna.trial.TrialState.PRUNED
    assert study.best_value == min(t.value for t in study.trials if t.value is not None)
    with pytest.raises(UserError, match="exists; remove it"):
        render_importance(made.path, export=file)


def apart(made, *, noted):
    """Three points that search lr apart, the last range kept alone; width as a number or a name."""
    spans = {"full": (1e-4, 1e-2), "gate": (1e-2, 1.0), "carry": (1e-3, 1e-2)}
    rng = np.random.default_rng(1)
    search = {}
    for point, (low, high) in spans.items():
        search = {"lr": {"low": low, "high": high, "log": point != "carry"}}
        for index in range(6):
            lr = low * (high / low) ** rng.uniform()
            made.run(point, index, 3 + abs(np.log10(lr) + 2), setting={"lr": lr})
        noted_here = {"search": search} if noted else {}
        made.study["points"].append(
            {"id": point, "label": f"cut {point}", "aliases": [], **noted_here}
        )
    made.study["search"] = search
    return made.write()


@pytest.mark.parametrize("noted", [True, False])
def test_points_that_search_a_field_in_ranges_apart_share_the_one_that_holds_them(
    made, tmp_path, noted
):
    path = apart(made, noted=noted)
    rows = json.loads(render_importance(path, "json", export=tmp_path / "tuned.db"))["rows"]
    assert [row["field"] for row in rows] == ["lr"]
    trials = optuna.load_study(
        study_name="toy", storage=f"sqlite:///{tmp_path / 'tuned.db'}"
    ).trials
    assert len(trials) == 18
    assert all(t.distributions["lr"]._contains(t.params["lr"]) for t in trials)
    if noted:
        span = optuna.distributions.FloatDistribution(1e-4, 1.0)
        assert trials[0].distributions["lr"] == span
        alone = ranges(load(path).study, labels={"cut gate"})["lr"]
        assert alone == {"low": 1e-2, "high": 1.0, "log": True}


@pytest.mark.parametrize(
    ("one", "other", "tried", "both"),
    [
        ({"low": 8, "high": 64, "log": True}, {"low": 4, "high": 16, "log": True}, 5,
         {"low": 4, "high": 64, "log": True}),
        ({"low": 8, "high": 64, "log": True}, {"low": 0.5, "high": 16.0, "log": False}, 5.5,
         {"low": 0.5, "high": 64.0, "log": False}),
        ({"values": [1.0, None]}, {"values": [2.0, None]}, 2.0, {"values": [1.0, None, 2.0]}),
        ({"values": ["a"]}, {"low": 1, "high": 2, "log": False}, 2, {"values": ["a", 2]}),
        ({"low": 1, "high": 2, "log": False}, {"low": 1, "high": 2, "log": False}, "a",
         {"values": ["a"]}),
    ],
)  # fmt: skip
def test_the_range_that_holds_two(one, other, tried, both):
    points = [{"label": "a", "search": {"f": one}}, {"label": "b", "search": {"f": other}}]
    found = ranges({"points": points}, [{"f": tried}])
    assert found == {"f": both}
    assert [type(v) for v in found["f"].values()] == [type(v) for v in both.values()]


def test_other_files_and_too_few_runs_are_refused(made, tmp_path):
    tune(made, lambda lr, width, clip: lr, samples=1)
    with pytest.raises(UserError, match=r"no Optuna file 'tuned\.csv'; known: \.db"):
        render_importance(made.path, export=tmp_path / "tuned.csv")
    with pytest.raises(UserError, match="5 tune runs with a loss do not tell fields apart"):
        render_importance(made.path)


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "analysis/importance.py", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
