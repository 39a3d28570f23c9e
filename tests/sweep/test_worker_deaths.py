"""A trial that dies is started again three times, whatever it was doing, and only then given up."""

import json
from types import SimpleNamespace
from typing import cast

import pytest

from lmzoo.sweep.console import Console
from lmzoo.sweep.dispatch import MAX_FAILURES, Dispatcher
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore

from .byhand import outcome, sweep
from .processes import finish

DYING = """
import os
from pathlib import Path
from lmzoo.sweep import main, tuner
from tests.sweep.conftest import _study

class Dying(tuner.Trial):
    trained = False

    def step(self):
        self.trained = True
        return super().step()

    def reset_config(self, new_config):
        marker = Path({marker!r})
        if self.trained and not marker.exists():
            marker.touch()
            os._exit(1)
        return super().reset_config(new_config)

if __name__ == "__main__":
    tuner.Trial = Dying
    main(_study(Path({sentences!r})))
"""


@pytest.fixture
def jobs(study, corpus, corpus_fields, tmp_path):
    """The study's jobs for Tune, and those that have ended."""
    store, ended = StudyStore(tmp_path / "toy"), []
    agenda = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
    console = cast(Console, SimpleNamespace(end=ended.append, epoch=lambda: None))

    def make(most: int) -> tuple[Dispatcher, list]:
        return Dispatcher(Packer(agenda, corpus, most=most), console, places=1), ended

    yield make
    store.close()


def test_a_run_whose_trial_died_is_given_out_again_and_at_last_has_failed(jobs):
    searcher, ended = jobs(0)
    config = searcher.suggest("0")
    for death in range(MAX_FAILURES):
        searcher.on_trial_complete(str(death), error=True)
        assert searcher.suggest(str(death + 1)) == config
    assert not ended
    searcher.on_trial_complete(str(MAX_FAILURES), error=True)
    assert [(job.run, job.status, job.reason) for job in ended] == [
        (config["folders"][0].rpartition("/")[2], "failed", "died 4 times")
    ]
    assert searcher.suggest("next") != config


def test_a_pack_that_died_stays_together_and_at_last_falls_apart(jobs):
    searcher, ended = jobs(8)
    config = searcher.suggest("0")
    assert len(config["folders"]) > 1
    searcher.take("0", [(config["folders"][0].rpartition("/")[2], 4, 3.0, True)])
    assert len(ended) == 1
    for death in range(MAX_FAILURES):
        searcher.on_trial_complete(str(death), error=True)
        assert searcher.suggest(str(death + 1)) == config
    searcher.on_trial_complete(str(MAX_FAILURES), error=True)
    rest = [one["folders"] for one in iter(lambda: searcher.suggest("next"), None)]
    assert [[folder] in rest for folder in config["folders"]] == [
        False,
        *[True] * (len(config["folders"]) - 1),
    ]
    assert len(ended) == 1


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("ray")
def test_a_trial_that_dies_between_two_runs_costs_neither_of_them(
    tmp_path, script, sweeping, sentences, study, corpus, corpus_fields
):
    marker = tmp_path / "died"
    script.write_text(DYING.format(marker=str(marker), sentences=str(sentences)))
    code, out, err = finish(sweeping(), 1800)
    assert code == 0, err
    assert marker.exists(), "nobody died: the check sees nothing"
    assert {json.loads(line)["status"] for line in out.splitlines()} <= {"finished", "pruned"}
    assert sweep(study, corpus, corpus_fields, tmp_path / "byhand")
    assert outcome(tmp_path / "runs" / "toy-text") == outcome(tmp_path / "byhand")
