"""`--engine tune`: trials give the records of any other sweep, also after a kill and `restore`."""

import contextlib
import json
import os
import pickle
import random
import shutil
import signal
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import lmzoo
from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.head_store import write_nonce
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.store.records import STUDY, TRACEBACK, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep import tune_trials
from lmzoo.lab.sweep.driver.execution import Sweep
from lmzoo.lab.sweep.listeners import Listeners
from lmzoo.trainables.resolve import resolve, store_name

from .local_fleet import Events
from .local_sweep import outcome
from .processes import epochs_on_disk, finish, start, wait_until

MOST_STEPS = 10_000


class LocalTrial:
    """What the engine uses of a trial of Tune."""

    def __init__(self, trial_id: str, config: dict) -> None:
        self.trial_id, self.config, self.status = trial_id, config, "PENDING"
        self.results, self.actor = [], None

    def set_status(self, status: str) -> None:
        self.status = status

    def should_recover(self) -> bool:
        return False

    def get_error(self) -> str:
        return "Traceback: it failed\nValueError: it failed\n"


class LocalActor(tune_trials.RunTrial):
    """A trainable without Tune's folders."""

    def __init__(self, config: dict, given: dict) -> None:
        self._iteration = 0
        self.setup(config, **given)

    def train(self) -> dict:
        self._iteration += 1
        return self.step()


@pytest.fixture(autouse=True)
def temporary(monkeypatch):
    """Keep the temporary folder of this process, which a trial changes."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)


class LocalTune:
    """Calls the search algorithm and the scheduler as Tune's controller does, in one process."""

    def __init__(self, study, corpus, fields, path, events=None, slots=2, seed=0) -> None:
        self.store = StudyStore(path)
        self.planner = Planner(study, resolve(study, corpus, fields), self.store)
        fleet = SimpleNamespace(planner=self.planner, listeners=Listeners([events or Events()]))
        self.scheduler = tune_trials.RunScheduler(fleet, SimpleNamespace(limit=lambda: slots))
        self.search, self.trials, self.finished = tune_trials.RunSearch(), [], False
        self._random = random.Random(seed)
        self._given = {
            "address": str(path), "nonce": write_nonce(self.store.store), "code": None,
            "software": {}, "trainer": (corpus, 1, 0.0),
        }  # fmt: skip

    def restore(self, snapshot: list[tuple[str, dict, str]]) -> None:
        """Add the trials of a snapshot; those that had not ended are pending."""
        for trial_id, config, status in snapshot:
            trial = LocalTrial(trial_id, config)
            trial.status = status if status in ("TERMINATED", "ERROR") else "PENDING"
            self._add(trial)

    def snapshot(self) -> list[tuple[str, dict, str]]:
        return [(trial.trial_id, trial.config, trial.status) for trial in self.trials]

    def run(self, steps: int = MOST_STEPS, fails: str = "") -> None:
        """Make steps until all trials have ended; a trial of the point `fails` raises."""
        for _ in range(steps):
            if self.finished and all(t.status in ("TERMINATED", "ERROR") for t in self.trials):
                return
            self._suggest()
            if (chosen := self.scheduler.choose_trial_to_run(self)) is not None:
                chosen.set_status("PENDING")
            for trial in self.trials:
                if trial.status == "PENDING":
                    trial.status, trial.actor = "RUNNING", LocalActor(trial.config, self._given)
                    trial.actor._iteration = len(trial.results)
            if running := [trial for trial in self.trials if trial.status == "RUNNING"]:
                self._train(self._random.choice(running), fails)
        assert steps < MOST_STEPS, "the sweep does not end"

    def kill(self) -> None:
        """End everything as SIGKILL does: only the locks are released."""
        for trial in self.trials:
            if trial.actor:
                trial.actor._lock.close()
        self.store.close()

    def stop_trial(self, trial: LocalTrial) -> None:
        assert trial.status == "PAUSED"
        trial.status = "TERMINATED"

    def _add(self, trial: LocalTrial) -> None:
        self.scheduler.on_trial_add(self, trial)
        self.trials.append(trial)

    def _suggest(self) -> None:
        config = None if self.finished else self.search.suggest(str(len(self.trials)))
        if config == tune_trials.Searcher.FINISHED:
            self.finished = True
        elif config is not None:
            self._add(LocalTrial(str(len(self.trials)), json.loads(json.dumps(config))))

    def _train(self, trial: LocalTrial, fails: str) -> None:
        if trial.config["point"]["label"] == fails:
            self.scheduler.on_trial_error(self, trial)
            self.search.on_trial_complete(trial.trial_id, error=True)
            self._close(trial, "ERROR")
            return
        result = trial.actor.train()
        flat = {k: x for k, x in result.items() if k != "test"}
        flat |= {f"test/{key}": x for key, x in (result.get("test") or {}).items()}
        decision = "STOP" if result.get("done") else ""
        decision = decision or self.scheduler.on_trial_result(self, trial, flat)
        trial.results.append(flat)
        if decision == "PAUSE":
            self._close(trial, "PAUSED")
        elif decision == "STOP":
            self.scheduler.on_trial_complete(self, trial, flat)
            self.search.on_trial_complete(trial.trial_id, result=flat)
            self._close(trial, "TERMINATED")

    def _close(self, trial: LocalTrial, status: str) -> None:
        trial.status = status
        trial.actor.cleanup()
        trial.actor = None


@pytest.mark.parametrize(("slots", "seed"), [(1, 0), (3, 1)])
def test_trials_give_the_records_and_choices_of_any_sweep(
    study, corpus, corpus_fields, tmp_path, undisturbed, slots, seed
):
    events = Events()
    tune = LocalTune(study, corpus, corpus_fields, tmp_path, events, slots, seed)
    tune.run()
    tune.kill()
    assert tune.planner.done
    assert outcome(tmp_path) == outcome(undisturbed)
    ours, theirs = (read_json(path / STUDY) for path in (tmp_path, undisturbed))
    assert ours["chosen"] == theirs["chosen"]
    runs = outcome(tmp_path)
    assert sorted(t.config["run"] for t in tune.trials) == sorted(runs) == sorted(events.started)
    for trial in tune.trials:
        reported = [result["epoch"] for result in trial.results]
        assert reported == [r["epoch"] for r in runs[trial.config["run"]] if r["event"] == "epoch"]
    tests = {run: test["token"] for run, _, test in events.ended if test}
    assert tests == {
        run: r["token"] for run, records in runs.items() for r in records if r["event"] == "test"
    }


@pytest.mark.parametrize(("steps", "behind"), [(3, 3), (12, 0), (17, 2), (55, 20)])
def test_a_killed_sweep_that_is_restored_has_the_records_of_an_undisturbed_one(
    study, corpus, corpus_fields, tmp_path, undisturbed, steps, behind
):
    """The snapshot of Tune is `behind` by some steps."""
    tune = LocalTune(study, corpus, corpus_fields, tmp_path, seed=steps)
    tune.run(steps - behind)
    snapshot = tune.snapshot()
    tune.run(behind)
    tune.kill()
    tune = LocalTune(study, corpus, corpus_fields, tmp_path, seed=steps + 1)
    tune.restore(snapshot)
    tune.run()
    tune.kill()
    assert all("valid_token" in result for trial in tune.trials for result in trial.results)
    assert tune.planner.done
    assert outcome(tmp_path) == outcome(undisturbed)


def test_a_restored_trial_of_a_run_that_the_study_lost_does_not_start(
    study, corpus, corpus_fields, tmp_path
):
    tune = LocalTune(study, corpus, corpus_fields, tmp_path)
    tune.restore([("0", {"run": "0123456789ab"}, "RUNNING")])
    assert tune.trials[0].status == "TERMINATED"
    tune.kill()


def test_a_run_that_fails_is_reported_with_its_traceback(study, corpus, corpus_fields, tmp_path):
    tune = LocalTune(study, corpus, corpus_fields, tmp_path)
    tune.run(fails="cut 4")
    tune.kill()
    failed = tune.planner.failed_runs
    assert {run.label for run in failed} == {"cut 4"}
    assert failed[0].reason.startswith("ValueError: it failed")
    assert "it failed" in (tmp_path / failed[0].id / TRACEBACK).read_text()
    assert any(r["event"] == "test" for records in outcome(tmp_path).values() for r in records)


def test_an_engine_that_cannot_do_what_is_asked_is_one_line(study):
    with pytest.raises(UserError, match="'spark' is unknown; choose packs or tune"):
        Sweep(study, Resources(), engine="spark")
    with pytest.raises(UserError, match="--max-cost needs --engine packs"):
        Sweep(study, Resources(hours=1.0), engine="tune")


class Planted:
    def __reduce__(self):
        return Path.touch, (Path(os.environ["PLANTED"]),)


@pytest.mark.parametrize(
    "change",
    [
        "none",
        "moved",
        "killed",
        "pickle",
        "state",
        "another",
        "pipe",
        "a folder",
        "shared",
        "ended",
    ],
)
def test_only_an_experiment_that_this_account_left_is_restored(
    change, tmp_path, monkeypatch, caplog
):
    """A pickle that another account plants in the store is not read."""
    monkeypatch.setenv("PLANTED", str(tmp_path / "executed"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    restored = []
    monkeypatch.setattr(tune_trials.tune.Tuner, "restore", lambda *given: restored.append(given))
    scheduler = SimpleNamespace(listeners=SimpleNamespace(listeners=[]))
    folder = tmp_path / "tune"
    tune_trials._tuner(dict, scheduler, folder)
    experiment = folder / "1"
    experiment.mkdir(exist_ok=True)
    state = experiment / "experiment_state-1.json"
    state.write_text('{"trials": []}')
    (experiment / "tuner.pkl").write_bytes(pickle.dumps({"own": 1}))
    if change != "killed":
        tune_trials.trust(tune_trials._digest(experiment))
    if change == "moved":
        folder = folder.rename(tmp_path / "moved")
    elif change == "state":
        state.write_text('{"trials": [{"_type": "CLOUDPICKLE_FALLBACK", "value": ""}]}')
    elif change == "another":
        (experiment / "searcher-state-1.pkl").write_bytes(pickle.dumps(Planted()))
    elif change == "pipe":
        os.mkfifo(experiment / "trainable.pkl")
    elif change == "a folder":
        shutil.copytree(experiment, folder / "7")
        (folder / "evil").mkdir()
        (folder / "evil/experiment_state-1.json").touch()
    elif change == "pickle":
        (experiment / "tuner.pkl").write_bytes(pickle.dumps(Planted()))
    elif change == "shared":
        folder.chmod(0o777)
    elif change == "ended":
        (folder / tune_trials.BEGUN).unlink()
    tune_trials._tuner(dict, scheduler, folder)
    assert (bool(restored), (tmp_path / "executed").exists()) == (change == "none", False)
    assert ("as this account left it" in caplog.text) == (change not in ("none", "ended"))
    assert (tmp_path / "data").exists() or change == "killed"


def test_a_trial_and_its_error_are_not_unpickled(tmp_path):
    """Tune keeps both in the store while a sweep runs."""
    actor = object.__new__(tune_trials.RunTrial)
    actor.restore(SimpleNamespace(metrics={"training_iteration": 3}))
    assert actor.iteration == 3
    read = tune_trials.Trial.get_pickled_error
    with contextlib.suppress(KeyboardInterrupt), tune_trials._unread_errors():
        assert tune_trials.Trial.get_pickled_error(actor) is None
        raise KeyboardInterrupt
    assert tune_trials.Trial.get_pickled_error is read


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("ray")
def test_a_sweep_in_tune_that_is_killed_and_restored_equals_the_default_engine(
    script, tmp_path, study, corpus_fields
):
    from ray import tune

    def store(name):
        return tmp_path / name / store_name(study.name, corpus_fields)

    def options(name):
        return ("--out", str(tmp_path / name), "--quiet", "--fuse", "off", "--engine", name)

    driver = start(script, *options("tune"))
    wait_until(lambda: epochs_on_disk(store("tune")) >= 25 or driver.poll())
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    code, out, err = finish(start(script, *options("tune")))
    assert (code, "== Status ==" in out, "== Status ==" in err) == (0, False, True), err
    code, _, err = finish(start(script, *options("packs")))
    assert code == 0, err
    assert outcome(store("tune")) == outcome(store("packs"))
    ours, theirs = (lmzoo.rank(store(name)).drop("seconds") for name in ("tune", "packs"))
    assert ours.equals(theirs)
    assert [path.name for path in (store("tune") / "tune").iterdir()] == ["1"]  # it was restored

    grid = tune.ResultGrid(tune.ExperimentAnalysis(store("tune") / "tune" / "1"))
    done = [result for result in grid if result.metrics.get("done")]
    assert len(done) > len(outcome(store("tune"))) / 2  # not what ended after the last snapshot
    for result in done:
        records = outcome(store("tune"))[result.config["run"]]
        losses = {r["epoch"]: r["valid_token"] for r in records if r["event"] == "epoch"}
        assert result.metrics["valid_token"] == losses[result.metrics["epoch"]]
    tested = next(result for result in grid if result.metrics.get("test"))
    model = lmzoo.load_run(tested.checkpoint.path)
    assert model.records[-1]["epoch"] == study.epochs
