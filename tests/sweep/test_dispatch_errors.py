"""An error in the sweep's own process ends the sweep in one line; the sweep can be continued."""

import dataclasses
import json

import pytest
from ray.tune.search import Searcher

from lmzoo.errors import UserError
from lmzoo.sweep.dispatch import Dispatcher
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.ray_backend import _StopOnError
from lmzoo.sweep.reassign import run_id_of
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore

from .local_sweep import SilentConsole, outcome, sweep
from .processes import finish, slow_ray_test

DISK_FULL = UserError("runs/toy: No space left on device, still after 60 s")


@pytest.fixture
def dispatcher(study, corpus, corpus_fields, tmp_path):
    store = StudyStore(tmp_path / "toy")
    planner = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
    yield Dispatcher(Packer(planner, corpus, max_members=0), SilentConsole(), max_workers=1)
    store.close()


def fail_with_full_disk(*_, **__):
    raise DISK_FULL


def end_step(dispatcher: Dispatcher) -> None:
    """Call the callback that Ray Tune calls after each of its steps."""
    _StopOnError(dispatcher).on_step_end(0, [])


def run_of(config: dict) -> str:
    return run_id_of(config["folders"][0])


@pytest.mark.parametrize("method", ["report", "end"])
@pytest.mark.parametrize("error", [DISK_FULL, KeyError("a bug")])
def test_an_error_in_the_planner_ends_the_sweep(dispatcher, monkeypatch, method, error):
    def fail(*_, **__):
        raise error

    config = dispatcher.suggest("0")
    end_step(dispatcher)
    monkeypatch.setattr(dispatcher.planner, method, fail)
    report = [(run_of(config), 1, 3.0, method == "end")]
    assert not dispatcher.report("0", report), "the trial continues"
    with pytest.raises(type(error)) as caught:
        end_step(dispatcher)
    assert caught.value is error


def test_an_error_in_a_trials_last_report_ends_the_sweep(dispatcher, monkeypatch):
    config = dispatcher.suggest("0")
    monkeypatch.setattr(dispatcher.planner, "end", fail_with_full_disk)
    dispatcher.on_trial_complete("0", {"runs": [(run_of(config), 4, 3.0, True)]})
    with pytest.raises(UserError, match="No space left"):
        end_step(dispatcher)


def test_after_an_error_no_more_trials_are_suggested(dispatcher, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(dispatcher.planner, "start", fail_with_full_disk)
        assert dispatcher.suggest("0") == Searcher.FINISHED
    assert dispatcher.suggest("1") == Searcher.FINISHED
    with pytest.raises(UserError, match="No space left"):
        end_step(dispatcher)


def test_after_an_error_reports_change_nothing_and_the_first_error_is_kept(dispatcher, monkeypatch):
    configs = {name: dispatcher.suggest(name) for name in "ab"}
    with monkeypatch.context() as patch:
        patch.setattr(dispatcher.planner, "report", fail_with_full_disk)
        dispatcher.report("a", [(run_of(configs["a"]), 1, 3.0, False)])
    running = [dict(point.running) for point in dispatcher.planner.points]
    assert not dispatcher.report("b", [(run_of(configs["b"]), 4, 3.0, True)])
    dispatcher.on_trial_complete("a", error=True)
    dispatcher.on_trial_complete("b", {"runs": [(run_of(configs["b"]), 4, 3.0, True)]})
    assert [dict(point.running) for point in dispatcher.planner.points] == running
    assert dispatcher.error is DISK_FULL


BREAKING = """
import dataclasses, errno, os
from pathlib import Path
from lmzoo.store import retry
from lmzoo.sweep import main
from lmzoo.sweep.study_store import StudyStore
from tests.sweep.conftest import toy_study

retry.RETRY_SECONDS = 0.2
marker, inner = Path({marker!r}), StudyStore.{method}

def breaking(self, *args):
    if marker.exists():
        return inner(self, *args)
    if {when}:
        marker.touch()
        self.store.append = lambda *_: retry.retry(full, "the store")
        self.store.write = self.store.append
    return inner(self, *args)

def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

StudyStore.{method} = breaking

if __name__ == "__main__":
    study = toy_study(Path({sentences!r}))
    main(dataclasses.replace(study, points=study.points[:1]))
"""


@slow_ray_test
@pytest.mark.parametrize(
    ("method", "when"),
    [("write_study", "args[0]['chosen']"), ("add_settings", "2 in args[1]")],
)
def test_a_full_store_ends_the_sweep_in_one_line_and_the_sweep_can_be_continued(
    tmp_path, script, start_sweep, sentences, study, corpus, corpus_fields, method, when
):
    marker = tmp_path / "broken"
    script.write_text(
        BREAKING.format(marker=str(marker), method=method, when=when, sentences=str(sentences))
    )
    code, _, err = finish(start_sweep(), 1800)
    assert marker.exists(), "the store did not break, so nothing was tested"
    assert code == 2, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith(
        "error: the store: No space left on device, still after 0 s"
    )
    code, out, err = finish(start_sweep(), 1800)
    assert code == 0, err
    assert all(json.loads(line)["status"] in ("finished", "pruned") for line in out.splitlines())
    study = dataclasses.replace(study, points=study.points[:1])
    assert sweep(study, corpus, corpus_fields, tmp_path / "undisturbed")
    assert outcome(tmp_path / "runs" / "toy-text") == outcome(tmp_path / "undisturbed")
