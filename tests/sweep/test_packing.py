"""Packs of runs: the same sweep as one run at a time, whoever is packed with whom."""

import itertools
import random

import pytest

from lmzoo.errors import UserError
from lmzoo.sweep import reassign as handover
from lmzoo.sweep.dispatch import MAX_FAILURES, Dispatcher
from lmzoo.sweep.packing import Packer, read_fuse
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore
from lmzoo.sweep.worker import Worker
from lmzoo.train.run import _facts
from tests.sweep.byhand import Silent, agree, outcome
from tests.sweep.byhand import sweep as one_by_one


def _trial(config, corpus, name):
    """A trial in this process; Tune would hand the corpus over through its object store."""

    class Here(Worker):
        trial_id = name

        def setup(self, config):
            super().setup(config, corpus=corpus)

    return Here(config=config)


@pytest.fixture
def fused_sweep(study, corpus, corpus_fields, given, monkeypatch):
    """Works a study off in packs; whatever can be shared is, however little is left of it."""
    monkeypatch.setattr("lmzoo.sweep.dispatch.WORTH", 0.0)

    def work(path, **how):
        return _fused_sweep(study, corpus, corpus_fields, path, given, **how)

    return work


def _fused_sweep(study, corpus, fields, path, given, *, most=None, seed=0, deadly=()):
    """What Tune does, in this process: two places, trials stepped in any order, some killed."""
    store, chance, names = StudyStore(path), random.Random(seed), itertools.count()
    agenda = Planner(study, resolve(study, corpus, fields), corpus, store)
    jobs = Dispatcher(Packer(agenda, corpus, most=most), Silent(), places=2)
    trials, sizes = {}, []
    for step in itertools.count():
        while len(trials) < 2:
            config = jobs.suggest(name := str(next(names)))
            if not isinstance(config, dict):
                break
            sizes.append(len(config["folders"]))
            trials[name] = _trial(config, corpus, name)
        if not trials:
            break
        name = chance.choice(sorted(trials))
        result = trials[name].step()
        if step in deadly:  # its last word is not heard, and another one takes over
            trials[name].cleanup()
            trials[name] = _trial(trials[name].config, corpus, name)
        elif result["done"] or not jobs.take(name, result["runs"]):
            jobs.on_trial_complete(name, result)
            trials.pop(name).cleanup()
        else:  # its next epoch begins at once, and with it what it gave away is free
            trials[name].let_go(given.get(name, ()))
    assert jobs.error is None
    assert agenda.done
    store.close()
    return sizes


def test_a_fused_sweep_is_the_same_sweep(study, corpus, corpus_fields, tmp_path, fused_sweep):
    assert one_by_one(study, corpus, corpus_fields, tmp_path / "alone")
    sizes = fused_sweep(tmp_path / "fused")
    assert max(sizes) > 2, "nothing was packed: the comparison sees nothing"
    agree(outcome(tmp_path / "fused"), outcome(tmp_path / "alone"))
    study_files = [(tmp_path / which / "study.json").read_text() for which in ("fused", "alone")]
    assert study_files[0] == study_files[1]


@pytest.mark.parametrize("seed", [1, 2])
def test_neither_company_nor_deaths_change_it(fused_sweep, tmp_path, seed):
    fused_sweep(tmp_path / "calm")
    deadly = random.Random(seed).sample(range(25), 6)
    fused_sweep(tmp_path / "wild", most=3, seed=seed, deadly=deadly)
    agree(outcome(tmp_path / "wild"), outcome(tmp_path / "calm"))


@pytest.mark.parametrize(("most", "asked"), [(0, []), (2, ["one"])], ids=["one run", "a pack"])
def test_only_a_pack_asks_what_was_given_away(tuned, corpus, monkeypatch, most, asked):
    told = []
    monkeypatch.setattr(handover, "reassigned", lambda trial: told.append(trial) or set())
    config = Dispatcher(Packer(tuned, corpus, most=most), Silent(), places=1).suggest("one")
    trial = _trial(config, corpus, "one")
    assert [epoch for _, epoch, *_ in trial.step()["runs"]] == [1] * max(1, most)
    trial.cleanup()
    assert told == asked


@pytest.mark.parametrize(
    ("most", "places", "sizes"),
    [(None, 2, [3, 3]), (2, 2, [2, 2, 1, 1]), (None, 1, [6]), (4, 1, [3, 3]), (0, 2, [1] * 6)],
)
def test_what_is_ready_is_shared_out_evenly(tuned, corpus, most, places, sizes):
    """Three points of two settings each, over the places that are still idle."""
    packer, found = Packer(tuned, corpus, most=most), []
    while pack := packer.next(idle=max(1, places - len(found) % places)):
        found.append(len(pack))
        assert all(packer.fused(job) == (most != 0) for job in pack)
    assert found == sizes


def die(jobs, trial):
    """Let the trial die as often as it is started again; the folders that it had each time."""
    had = []
    for i in range(MAX_FAILURES + 1):
        had.append((jobs.runs[trial].config if i == 0 else jobs.suggest(trial))["folders"])
        jobs.on_trial_complete(trial, error=True)
    return had


def test_what_a_pack_died_with_is_tried_alone(tuned, corpus):
    jobs = Dispatcher(Packer(tuned, corpus, most=None), Silent(), places=2)
    died = jobs.suggest("first")["folders"]
    assert die(jobs, "first") == [died] * (MAX_FAILURES + 1)
    packs = {}
    while pack := jobs.suggest(name := str(len(packs))):
        packs[name] = pack["folders"]
    again = {name: pack for name, pack in packs.items() if set(pack) & set(died)}
    assert sorted(again.values()) == [[folder] for folder in sorted(died)]
    die(jobs, next(iter(again)))
    failed = [j for p in tuned.points for j in p.jobs.values() if j.status == "failed"]
    assert [job.reason for job in failed] == ["died 4 times"]


@pytest.mark.parametrize(("text", "most"), [("auto", None), ("off", 0), ("8", 8)])
def test_how_many_at_most(text, most):
    assert read_fuse(text) == most


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.5", ""])
def test_a_wrong_number_is_named(text):
    with pytest.raises(UserError, match=r"--fuse .* is not auto, off or a number"):
        read_fuse(text)


def test_what_is_asked_of_the_first_runs_is_known_before_they_begin(tuned, corpus, monkeypatch):
    _facts.cache_clear()
    packer = Packer(tuned, corpus, most=None)
    packer.prepare()
    assert not tuned.points[0].running
    monkeypatch.setattr("lmzoo.train.run.unsound", None)  # called, it would fail
    monkeypatch.setattr("lmzoo.sweep.packing.fusible", None)
    assert packer.next(idle=1)


def test_of_many_runs_only_the_first_are_looked_at_before_any_begins(tuned, corpus, monkeypatch):
    asked = []
    monkeypatch.setattr("lmzoo.sweep.packing.FIRST", 2)
    monkeypatch.setattr("lmzoo.sweep.packing.measured", lambda config, _: asked.append(config))
    Packer(tuned, corpus, most=None).prepare()
    assert asked == [job.config for job in tuned.ready()[:2]]
    assert len(tuned.ready()) > 2
