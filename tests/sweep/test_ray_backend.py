"""The backend's scheduler selects trials for free actors and limits Ray Tune's memory."""

from types import SimpleNamespace

from ray.train._internal.storage import StorageContext
from ray.tune.experiment import Trial

from lmzoo.sweep import ray_backend
from lmzoo.sweep.ray_backend import _PlannerScheduler


class HashableTrial(SimpleNamespace):
    """A trial that can be a member of a set, as Ray Tune's trials are."""

    __hash__ = object.__hash__


def test_a_free_actor_gets_the_newest_trial_until_the_oldest_has_waited_long(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(ray_backend.time, "monotonic", lambda: clock[0])
    trials = [HashableTrial(trial_id=name, status="PENDING") for name in "abc"]
    trials[0].status = "RUNNING"
    # The fake has no `get_trials`: that list contains thousands of ended trials.
    controller = SimpleNamespace(get_live_trials=lambda: set(trials))
    scheduler = _PlannerScheduler(SimpleNamespace(packs=dict.fromkeys("abc")))
    assert scheduler.choose_trial_to_run(controller).trial_id == "c"
    clock[0] = ray_backend.ACTOR_START_SECONDS + 1
    assert scheduler.choose_trial_to_run(controller).trial_id == "b"
    for trial in trials:
        trial.status = "RUNNING"
    assert scheduler.choose_trial_to_run(controller) is None


def test_an_ended_trial_keeps_its_last_result_and_no_moving_averages(tmp_path):
    trial = Trial("sweep", stub=True, storage=StorageContext(str(tmp_path), "x"))
    for loss in (3.0, 2.0):
        trial.update_last_result({"loss": loss, "trial_id": trial.trial_id, "done": loss == 2.0})
    assert trial.metric_analysis["loss"]["min"] == 2.0
    scheduler = _PlannerScheduler(SimpleNamespace(packs={}))
    scheduler.on_trial_complete(None, trial, trial.last_result)
    assert not trial.metric_analysis
    assert not trial.metric_n_steps
    assert trial.last_result["loss"] == 2.0
