"""Packs of runs: the same sweep as one run at a time, whoever is packed with whom."""

import itertools
import random
from contextlib import closing

import pytest

from lmzoo.errors import UserError
from sweeps.engine import handover
from sweeps.engine.agenda import Agenda
from sweeps.engine.fused import Packer, read_fuse
from sweeps.engine.jobs import MAX_FAILURES, Jobs
from sweeps.engine.resolve import resolve
from sweeps.engine.store import Store
from sweeps.engine.trial import Trial
from tests.sweeps.byhand import agree, outcome
from tests.sweeps.byhand import sweep as one_by_one


class _Silent:
    """A console that says nothing."""

    def epoch(self):
        pass

    def end(self, job):
        pass


@pytest.fixture(autouse=True)
def given(monkeypatch):
    """What was given away, by trial: in a dictionary here, as there is no Ray."""
    told: dict[str, set[str]] = {}
    monkeypatch.setattr(handover, "given_away", lambda trial: told.get(trial, set()))
    monkeypatch.setattr(
        handover, "give_away", lambda trial, runs: told.setdefault(trial, set()).update(runs)
    )
    monkeypatch.setattr(handover, "forget", lambda trial: told.pop(trial, None))
    return told


def _trial(config, corpus, name):
    """A trial in this process; Tune would hand the corpus over through its object store."""

    class Here(Trial):
        trial_id = name

        def setup(self, config):
            super().setup(config, corpus=corpus)

    return Here(config=config)


def _fused_sweep(study, corpus, fields, path, *, most=None, seed=0, deadly=()):
    """What Tune does, in this process: two places, trials stepped in any order, some killed."""
    store, chance, names = Store(path), random.Random(seed), itertools.count()
    agenda = Agenda(study, resolve(study, corpus, fields), corpus, store)
    jobs = Jobs(Packer(agenda, corpus, most=most), _Silent(), places=2)
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
            trials[name].let_go()
    assert jobs.error is None
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
    tuned = {point.label for point in points if not point.floor}
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
    jobs = Jobs(Packer(agenda, corpus, most=None), _Silent(), places=2)
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


def test_a_place_with_nothing_to_do_gets_half_of_a_pack(agenda, corpus, given):
    """All six are with one trial, then another place is there; what is asked for is all trained."""
    places = 1
    jobs = Jobs(Packer(agenda, corpus, most=None), _Silent(), 1, lambda: places)
    config = jobs.suggest("one")
    runs = [handover.run_of(folder) for folder in config["folders"]]
    assert len(runs) == 6
    assert jobs.take("one", [(run, 1, 2.0, False) for run in runs])
    assert not given, "there is nobody to give to"
    places = 3
    assert jobs.take("one", [(run, 2, 2.0, False) for run in runs])
    shared = jobs.suggest("two")
    assert [len(jobs.runs[trial].going) for trial in ("one", "two")] == [3, 3]
    assert given == {"one": {handover.run_of(folder) for folder in shared["folders"]}}
    assert jobs.runs["one"].going | jobs.runs["two"].going == set(runs)
    assert jobs.suggest("three") is None
    kept_runs = sorted(jobs.runs["one"].going)
    assert jobs.take("one", [(run, 2, 2.0, False) for run in kept_runs])
    assert jobs.suggest("three") is None, "the second place may not exist: nobody was heard there"
    kept = sorted(jobs.runs["one"].config["folders"])
    jobs.on_trial_complete("one", error=True)
    assert sorted(jobs.suggest("one again")["folders"]) == kept, "what was given away came back"


def test_what_is_all_but_over_is_not_shared(agenda, corpus, given):
    jobs = Jobs(Packer(agenda, corpus, most=None), _Silent(), 1, lambda: 2)
    config = jobs.suggest("one")
    runs = [handover.run_of(folder) for folder in config["folders"]]
    last = config["budget"] - 1
    assert jobs.take("one", [(run, last, 2.0, False) for run in runs])
    assert not given
    assert jobs.suggest("two") is None


@pytest.mark.parametrize(("text", "most"), [("auto", None), ("off", 0), ("8", 8)])
def test_how_many_at_most(text, most):
    assert read_fuse(text) == most


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.5", ""])
def test_a_wrong_number_is_named(text):
    with pytest.raises(UserError, match=r"--fuse .* is not auto, off or a number"):
        read_fuse(text)
