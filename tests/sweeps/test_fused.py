"""Packs of runs: the same sweep as one run at a time, whoever is packed with whom."""

import itertools
import random
from contextlib import closing

import pytest

from lmzoo.errors import UserError
from sweeps.engine.agenda import Agenda
from sweeps.engine.fused import Packer, read_fuse
from sweeps.engine.resolve import resolve
from sweeps.engine.store import Store
from sweeps.engine.trial import Trial
from sweeps.engine.tuner import MAX_FAILURES, _Jobs
from tests.sweeps.byhand import agree, outcome
from tests.sweeps.byhand import sweep as one_by_one


class _Silent:
    """A console that says nothing."""

    def epoch(self):
        pass

    def end(self, job):
        pass


def _trial(config, corpus):
    """A trial in this process; Tune would hand the corpus over through its object store."""

    class Here(Trial):
        def setup(self, config):
            super().setup(config, corpus=corpus)

    return Here(config=config)


def _fused_sweep(study, corpus, fields, path, *, most=None, seed=0, deadly=()):
    """What Tune does, in this process: two places, trials stepped in any order, some killed."""
    store, chance, names = Store(path), random.Random(seed), itertools.count()
    agenda = Agenda(study, resolve(study, corpus, fields), corpus, store)
    jobs = _Jobs(Packer(agenda, corpus, most=most), _Silent(), places=2)
    trials, sizes = {}, []
    for step in itertools.count():
        while len(trials) < 2:
            config = jobs.suggest(name := str(next(names)))
            if not isinstance(config, dict):
                break
            sizes.append(len(config["folders"]))
            trials[name] = _trial(config, corpus)
        if not trials:
            break
        name = chance.choice(sorted(trials))
        result = trials[name].step()
        if step in deadly:  # its last word is not heard, and another one takes over
            trials[name].cleanup()
            trials[name] = _trial(trials[name].config, corpus)
        elif result["done"] or not jobs.take(name, result["runs"]):
            jobs.on_trial_complete(name, result)
            trials.pop(name).cleanup()
    assert agenda.done
    store.close()
    return sizes


def test_a_fused_sweep_is_the_same_sweep(study, corpus, corpus_fields, tmp_path):
    assert one_by_one(study, corpus, corpus_fields, tmp_path / "alone")
    sizes = _fused_sweep(study, corpus, corpus_fields, tmp_path / "fused")
    assert max(sizes) > 2, "nothing was packed: the comparison sees nothing"
    agree(outcome(tmp_path / "fused"), outcome(tmp_path / "alone"))
    study_files = [(tmp_path / which / "study.json").read_text() for which in ("fused", "alone")]
    assert study_files[0] == study_files[1]


@pytest.mark.parametrize("seed", [1, 2])
def test_neither_company_nor_deaths_change_it(study, corpus, corpus_fields, tmp_path, seed):
    _fused_sweep(study, corpus, corpus_fields, tmp_path / "calm")
    deadly = random.Random(seed).sample(range(25), 6)
    _fused_sweep(study, corpus, corpus_fields, tmp_path / "wild", most=3, seed=seed, deadly=deadly)
    agree(outcome(tmp_path / "wild"), outcome(tmp_path / "calm"))


@pytest.fixture
def agenda(study, corpus, corpus_fields, tmp_path):
    points = resolve(study, corpus, corpus_fields)
    tuned = [point for point in points if not point.floor]
    with closing(Store(tmp_path)) as store:
        yield Agenda(study, points, corpus, store, tuned)


@pytest.mark.parametrize(
    ("most", "places", "sizes"),
    [(None, 2, [3, 3]), (2, 2, [2, 2, 1, 1]), (None, 1, [6]), (4, 1, [3, 3]), (0, 2, [1] * 6)],
)
def test_what_is_ready_is_shared_out_evenly(agenda, corpus, most, places, sizes):
    """Three points of two settings each, over the places that are still idle."""
    packer, found = Packer(agenda, corpus, most=most), []
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


def test_what_a_pack_died_with_is_tried_alone(agenda, corpus):
    jobs = _Jobs(Packer(agenda, corpus, most=None), _Silent(), places=2)
    died = jobs.suggest("first")["folders"]
    assert die(jobs, "first") == [died] * (MAX_FAILURES + 1)
    packs = {}
    while pack := jobs.suggest(name := str(len(packs))):
        packs[name] = pack["folders"]
    again = {name: pack for name, pack in packs.items() if set(pack) & set(died)}
    assert sorted(again.values()) == [[folder] for folder in sorted(died)]
    die(jobs, next(iter(again)))
    failed = [j for p in agenda.points for j in p.jobs.values() if j.status == "failed"]
    assert [job.reason for job in failed] == ["died 4 times"]


@pytest.mark.parametrize(("text", "most"), [("auto", None), ("off", 0), ("8", 8)])
def test_how_many_at_most(text, most):
    assert read_fuse(text) == most


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.5", ""])
def test_a_wrong_number_is_named(text):
    with pytest.raises(UserError, match=r"--fuse .* is not auto, off or a number"):
        read_fuse(text)
