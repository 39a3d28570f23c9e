"""What goes wrong in the sweep itself while Tune runs ends it in one line, to be taken up again."""

import dataclasses
import json
from types import SimpleNamespace
from typing import cast

import pytest
from ray.tune.search import Searcher

from lmzoo.errors import UserError
from lmzoo.sweep.console import Console
from lmzoo.sweep.dispatch import Dispatcher
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.ray_backend import _Errors
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore

from .byhand import outcome, sweep
from .processes import finish

AWAY = UserError("runs/toy: No space left on device, for 60 s")


@pytest.fixture
def jobs(study, corpus, corpus_fields, tmp_path):
    store = StudyStore(tmp_path / "toy")
    agenda = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
    console = cast(Console, SimpleNamespace(end=lambda job: None, epoch=lambda: None))
    yield Dispatcher(Packer(agenda, corpus, most=0), console, places=1)
    store.close()


def away(*_, **__):
    raise AWAY


def ends(jobs: Dispatcher) -> None:
    """What Tune does after each of its steps."""
    _Errors(jobs).on_step_end(0, [])


def run_of(config: dict) -> str:
    return config["folders"][0].rpartition("/")[2]


@pytest.mark.parametrize("method", ["report", "end"])
@pytest.mark.parametrize("error", [AWAY, KeyError("our own mistake")])
def test_an_error_in_a_callback_is_kept_and_ends_the_sweep(jobs, monkeypatch, method, error):
    def fail(*_, **__):
        raise error

    config = jobs.suggest("0")
    ends(jobs)
    monkeypatch.setattr(jobs.agenda, method, fail)
    report = [(run_of(config), 1, 3.0, method == "end")]
    assert not jobs.take("0", report), "the trial goes on"
    with pytest.raises(type(error)) as caught:
        ends(jobs)
    assert caught.value is error


def test_an_error_in_what_a_trial_says_last_is_kept_too(jobs, monkeypatch):
    config = jobs.suggest("0")
    monkeypatch.setattr(jobs.agenda, "end", away)
    jobs.on_trial_complete("0", {"runs": [(run_of(config), 4, 3.0, True)]})
    with pytest.raises(UserError, match="No space left"):
        ends(jobs)


def test_an_error_while_a_job_is_given_out_is_kept_and_no_other_is_given_out(jobs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(jobs.agenda, "issue", away)
        assert jobs.suggest("0") == Searcher.FINISHED
    assert jobs.suggest("1") == Searcher.FINISHED
    with pytest.raises(UserError, match="No space left"):
        ends(jobs)


def test_what_follows_an_error_changes_nothing_and_does_not_hide_it(jobs, monkeypatch):
    configs = {name: jobs.suggest(name) for name in "ab"}
    with monkeypatch.context() as patch:
        patch.setattr(jobs.agenda, "report", away)
        jobs.take("a", [(run_of(configs["a"]), 1, 3.0, False)])
    running = [dict(point.running) for point in jobs.agenda.points]
    assert not jobs.take("b", [(run_of(configs["b"]), 4, 3.0, True)])
    jobs.on_trial_complete("a", error=True)
    jobs.on_trial_complete("b", {"runs": [(run_of(configs["b"]), 4, 3.0, True)]})
    assert [dict(point.running) for point in jobs.agenda.points] == running
    assert jobs.error is AWAY


BREAKING = """
import dataclasses, errno, os
from pathlib import Path
from lmzoo import persist
from lmzoo.sweep import main
from lmzoo.sweep.study_store import Store
from tests.sweep.conftest import _study

persist.PATIENCE = 0.2
marker, inner = Path({marker!r}), Store.{method}

def breaking(self, *given):
    if marker.exists():
        return inner(self, *given)
    if {when}:
        marker.touch()
        self.place.append = lambda *_: persist.persistently(full, "the store")
        self.place.write = self.place.append
    return inner(self, *given)

def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

Store.{method} = breaking

if __name__ == "__main__":
    study = _study(Path({sentences!r}))
    main(dataclasses.replace(study, points=study.points[:1]))
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize(
    ("method", "when"),
    [("write_study", "given[0]['chosen']"), ("add_settings", "2 in given[1]")],
)
def test_a_store_that_is_full_for_the_sweep_alone_ends_it_in_one_line_and_it_goes_on(
    tmp_path, script, sweeping, sentences, study, corpus, corpus_fields, method, when
):
    marker = tmp_path / "broken"
    script.write_text(
        BREAKING.format(marker=str(marker), method=method, when=when, sentences=str(sentences))
    )
    code, _, err = finish(sweeping(), 1800)
    assert marker.exists(), "nothing broke: the test sees nothing"
    assert code == 2, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("error: the store: No space left on device, for 0 s")
    code, out, err = finish(sweeping(), 1800)
    assert code == 0, err
    assert all(json.loads(line)["status"] in ("finished", "pruned") for line in out.splitlines())
    study = dataclasses.replace(study, points=study.points[:1])
    assert sweep(study, corpus, corpus_fields, tmp_path / "byhand")
    assert outcome(tmp_path / "runs" / "toy-text") == outcome(tmp_path / "byhand")
