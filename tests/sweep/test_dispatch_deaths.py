"""A pack that dies is restarted three times; then each of its runs is tried alone."""

import json

import pytest

from lmzoo.sweep.dispatch import MAX_FAILURES, Dispatcher
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.reassign import run_id_of
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore

from .local_sweep import SilentConsole, outcome, sweep
from .processes import finish, slow_ray_test

DYING = """
import os
from pathlib import Path
from lmzoo.sweep import main, ray_backend
from tests.sweep.conftest import toy_study

class DyingWorker(ray_backend.Worker):
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
    ray_backend.Worker = DyingWorker
    main(toy_study(Path({sentences!r})))
"""


@pytest.fixture
def make_dispatcher(study, corpus, corpus_fields, tmp_path):
    """Returns a dispatcher of the toy study with this pack size."""
    store = StudyStore(tmp_path / "toy")
    planner = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)

    def make(max_members: int) -> Dispatcher:
        packer = Packer(planner, corpus, max_members=max_members)
        return Dispatcher(packer, SilentConsole(), max_workers=1)

    yield make
    store.close()


def test_a_run_whose_trial_dies_is_restarted_and_finally_fails(make_dispatcher):
    dispatcher = make_dispatcher(0)
    config, ended = dispatcher.suggest("0"), dispatcher.console.ended
    for death in range(MAX_FAILURES):
        dispatcher.on_trial_complete(str(death), error=True)
        assert dispatcher.suggest(str(death + 1)) == config
    assert not ended
    dispatcher.on_trial_complete(str(MAX_FAILURES), error=True)
    assert [(run.id, run.status, run.reason) for run in ended] == [
        (run_id_of(config["folders"][0]), "failed", "died 4 times")
    ]
    assert dispatcher.suggest("next") != config


def test_a_pack_that_dies_is_restarted_and_finally_divided_into_single_runs(make_dispatcher):
    dispatcher = make_dispatcher(8)
    config, ended = dispatcher.suggest("0"), dispatcher.console.ended
    first, *others = config["folders"]
    assert others
    dispatcher.report("0", [(run_id_of(first), 4, 3.0, True)])
    assert len(ended) == 1
    for death in range(MAX_FAILURES):
        dispatcher.on_trial_complete(str(death), error=True)
        assert dispatcher.suggest(str(death + 1)) == config
    dispatcher.on_trial_complete(str(MAX_FAILURES), error=True)
    packs = [pack["folders"] for pack in iter(lambda: dispatcher.suggest("next"), None)]
    assert [first] not in packs
    assert all([folder] in packs for folder in others)
    assert len(ended) == 1


@slow_ray_test
def test_a_worker_that_dies_between_two_runs_changes_neither_run(
    tmp_path, script, start_sweep, sentences, study, corpus, corpus_fields
):
    marker = tmp_path / "died"
    script.write_text(DYING.format(marker=str(marker), sentences=str(sentences)))
    code, out, err = finish(start_sweep(), 1800)
    assert code == 0, err
    assert marker.exists(), "no worker died, so nothing was tested"
    assert {json.loads(line)["status"] for line in out.splitlines()} <= {"finished", "pruned"}
    assert sweep(study, corpus, corpus_fields, tmp_path / "undisturbed")
    assert outcome(tmp_path / "runs" / "toy-text") == outcome(tmp_path / "undisturbed")
