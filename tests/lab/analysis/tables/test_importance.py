"""The importance of searched fields, their ranges, and the export to Optuna."""

import json

import numpy as np
import optuna
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.records.load import load_study
from lmzoo.lab.analysis.records.tuning import read_tune_runs, search_ranges, variance_between_points
from lmzoo.lab.analysis.tables.importance import importance_shares, study_importance
from lmzoo.lab.analysis.text.render import render

POINTS = {"full": 0.0, "gate": 5.0, "carry": -2.0, "write": 1.0, "bias": 9.0}


def tune(toy, loss, samples=12):
    """Add tune runs of five points, whose losses differ more than those of any settings."""
    rng = np.random.default_rng(0)
    for point, level in POINTS.items():
        for index in range(samples):
            lr, width = 10 ** rng.uniform(-4, -1), int(rng.integers(8, 257))
            clip = [1.0, None][int(rng.integers(2))]
            setting = {"lr": lr, "model.width": width, "recipe.clip": clip}
            toy.add_run(point, index, 20 + level + loss(lr, width, clip), setting=setting)
        toy.study_json["points"].append({"id": point, "label": f"cut {point}", "aliases": []})
    toy.write()
    return toy


@pytest.mark.parametrize(
    ("field", "loss"),
    [
        ("lr", lambda lr, width, clip: abs(np.log10(lr) + 2.5)),
        ("model.width", lambda lr, width, clip: width / 100),
        ("recipe.clip", lambda lr, width, clip: float(clip is None)),
    ],
)
def test_the_only_field_with_an_effect_has_nearly_all_the_variance(toy, field, loss):
    folder = load_study(tune(toy, loss).path)
    tuning = read_tune_runs(folder)
    frame = importance_shares(tuning, folder.study["search"], resamples=3)
    assert frame["field"][0] == field
    assert frame["share"][0] > 0.8
    assert frame["low"][0] > frame["high"][1]
    assert variance_between_points(tuning) > 0.9


def test_two_fields_that_matter_only_together_have_small_shares(toy):
    def loss(lr, width, clip):
        return np.sign(np.log10(lr) + 2.5) * np.sign(width - 132)

    folder = load_study(tune(toy, loss, samples=50).path)
    frame = importance_shares(read_tune_runs(folder), folder.study["search"], resamples=0)
    assert frame["share"].sum() < 0.4
    assert frame["low"].null_count() == 3


def test_losses_are_compared_at_the_last_epoch_that_all_runs_reached(toy):
    """A run that is pruned at epoch 1 has no loss at the last epoch."""
    tune(toy, lambda lr, width, clip: lr, samples=3)
    run = toy.add_run("full", 99, 40.0, status="pruned", setting={"lr": 0.1})
    path = toy.records_path(run)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[-1].replace('"epoch": 3', '"epoch": 1')]) + "\n")
    diverged = toy.add_run("full", 98, None, setting={"lr": 0.1})
    tuning = read_tune_runs(load_study(toy.path))
    assert (tuning.epoch, tuning.fields) == (1, ("lr",))
    value = dict(tuning.runs.select("run", "value").iter_rows())
    assert value[run] == pytest.approx(40.2)  # loss + (3 epochs - 1) / 10
    assert value[diverged] is None
    text = render(study_importance(toy.path), "table", width=200)
    assert "17 tune runs, of which 15 finished, 1 pruned, 1 diverged" in text
    with pytest.raises(
        UserError, match="not every tune run has a loss at epoch 3; the last such epoch is 1"
    ):
        read_tune_runs(load_study(toy.path), epoch=3)


def test_one_point_can_be_selected(toy):
    tune(toy, lambda lr, width, clip: lr, samples=3)
    assert len(read_tune_runs(load_study(toy.path), point="cut gate").runs) == 3
    with pytest.raises(UserError, match="no point 'gates'; known: cut full, cut gate"):
        study_importance(toy.path, point="gates")


def test_tune_runs_are_sorted_by_point_and_run(toy):
    """The bootstrap draws runs by position, so their order decides the interval."""
    tune(toy, lambda lr, width, clip: lr)
    runs = read_tune_runs(load_study(toy.path)).runs.select("label", "run").rows()
    assert runs == sorted(runs)


@pytest.mark.parametrize("name", ["tuned.db", "tuned.journal"])
def test_optuna_reads_the_exported_runs(toy, tmp_path, name):
    tune(toy, lambda lr, width, clip: lr, samples=3)
    pruned = toy.add_run("gate", 99, 40.0, status="pruned", setting={"lr": 0.1})
    file = tmp_path / name
    assert "16 runs written" in render(study_importance(toy.path, at=1, export=file), "table")
    if name.endswith(".db"):
        storage = f"sqlite:///{file}"
    else:
        backend = optuna.storages.journal.JournalFileBackend(str(file))
        storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name="toy", storage=storage)
    by_run = {trial.user_attrs["run"]: trial for trial in study.trials}
    assert len(by_run) == 16
    trial = by_run["gate-tune-2"]
    config = json.loads(toy.config_path("gate-tune-2").read_text())
    assert trial.params == {"point": "cut gate", **config["setting"]}
    assert list(trial.intermediate_values) == [1, 2, 3]
    assert trial.value == min(trial.intermediate_values.values())
    assert by_run[pruned].state is optuna.trial.TrialState.PRUNED
    assert study.best_value == min(t.value for t in study.trials if t.value is not None)
    with pytest.raises(UserError, match="exists; remove it"):
        study_importance(toy.path, export=file)


def with_different_ranges(toy, *, stored):
    """Add three points that search lr in different ranges.

    With `stored`, each point has its range in `study.json`, else only the last range is there.
    """
    spans = {"full": (1e-4, 1e-2), "gate": (1e-2, 1.0), "carry": (1e-3, 1e-2)}
    rng = np.random.default_rng(1)
    search = {}
    for point, (low, high) in spans.items():
        search = {"lr": {"low": low, "high": high, "log": point != "carry"}}
        for index in range(6):
            lr = low * (high / low) ** rng.uniform()
            toy.add_run(point, index, 3 + abs(np.log10(lr) + 2), setting={"lr": lr})
        own = {"search": search} if stored else {}
        toy.study_json["points"].append(
            {"id": point, "label": f"cut {point}", "aliases": [], **own}
        )
    toy.study_json["search"] = search
    return toy.write()


@pytest.mark.parametrize("stored", [True, False])
def test_different_ranges_of_a_field_are_exported_as_one(toy, tmp_path, stored):
    path = with_different_ranges(toy, stored=stored)
    rows = json.loads(render(study_importance(path, export=tmp_path / "tuned.db"), "json"))["rows"]
    assert [row["field"] for row in rows] == ["lr"]
    trials = optuna.load_study(
        study_name="toy", storage=f"sqlite:///{tmp_path / 'tuned.db'}"
    ).trials
    assert len(trials) == 18
    assert all(t.distributions["lr"]._contains(t.params["lr"]) for t in trials)
    if stored:
        span = optuna.distributions.FloatDistribution(1e-4, 1.0)
        assert trials[0].distributions["lr"] == span
        alone = search_ranges(load_study(path).study, labels={"cut gate"})["lr"]
        assert alone == {"low": 1e-2, "high": 1.0, "log": True}


@pytest.mark.parametrize(
    ("first", "second", "tried", "union"),
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
def test_the_union_of_two_ranges_and_a_tried_value(first, second, tried, union):
    points = [{"label": "a", "search": {"f": first}}, {"label": "b", "search": {"f": second}}]
    result = search_ranges({"points": points}, [{"f": tried}])
    assert result == {"f": union}
    assert [type(v) for v in result["f"].values()] == [type(v) for v in union.values()]


def test_unknown_files_and_too_few_runs_are_refused(toy, tmp_path):
    tune(toy, lambda lr, width, clip: lr, samples=1)
    with pytest.raises(UserError, match=r"no Optuna file 'tuned\.csv'; known: \.db"):
        study_importance(toy.path, export=tmp_path / "tuned.csv")
    with pytest.raises(UserError, match="5 tune runs with a loss are not enough to compare fields"):
        study_importance(toy.path)


def test_a_share_found_in_noise_is_one_by_chance(toy):
    noise = np.random.default_rng(3)
    folder = load_study(tune(toy, lambda *_: float(noise.normal())).path)
    tuning = read_tune_runs(folder)
    frame = importance_shares(tuning, folder.study["search"], resamples=4)
    assert frame["share"].max() > 0.1  # a forest explains noise
    assert (frame["share"] <= frame["chance"] + 0.1).all()
