"""A sweep in packs gives the results of a sweep with one run at a time."""

import itertools
import random

import pytest

from lmzoo.errors import UserError
from lmzoo.sweep import reassign
from lmzoo.sweep.dispatch import MAX_FAILURES, Dispatcher
from lmzoo.sweep.packing import Packer, parse_fuse
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore
from lmzoo.train import run_config

from .local_sweep import SilentConsole, assert_close, local_worker, outcome, sweep


@pytest.fixture
def packed_sweep(study, corpus, corpus_fields, removed, monkeypatch):
    """Sweeps the study in packs, in this process; packs are split however little time is left.

    Like Ray Tune, it has two workers; a random one makes each step. At the steps in `deaths` a
    worker dies before its report is received. Returns the pack sizes.
    """
    monkeypatch.setattr("lmzoo.sweep.dispatch.MIN_SECONDS_LEFT", 0.0)

    def run(path, *, max_members=None, seed=0, deaths=()) -> list[int]:
        store, generator, names = StudyStore(path), random.Random(seed), itertools.count()
        planner = Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
        packer = Packer(planner, corpus, max_members=max_members)
        dispatcher = Dispatcher(packer, SilentConsole(), max_workers=2)
        workers, sizes = {}, []
        for step in itertools.count():
            while len(workers) < 2:
                config = dispatcher.suggest(name := str(next(names)))
                if not isinstance(config, dict):
                    break
                sizes.append(len(config["folders"]))
                workers[name] = local_worker(config, corpus, name)
            if not workers:
                break
            name = generator.choice(sorted(workers))
            result = workers[name].step()
            if step in deaths:
                workers[name].cleanup()
                workers[name] = local_worker(workers[name].config, corpus, name)
            elif result["done"] or not dispatcher.report(name, result["runs"]):
                dispatcher.on_trial_complete(name, result)
                workers.pop(name).cleanup()
            else:  # the worker's next step would begin at once, and release the removed runs
                workers[name].release(removed.get(name, ()))
        assert dispatcher.error is None
        assert planner.done
        store.close()
        return sizes

    return run


def test_a_packed_sweep_gives_the_same_results(
    study, corpus, corpus_fields, tmp_path, packed_sweep
):
    assert sweep(study, corpus, corpus_fields, tmp_path / "single")
    sizes = packed_sweep(tmp_path / "packed")
    assert max(sizes) > 2, "no pack was trained, so nothing was tested"
    assert_close(outcome(tmp_path / "packed"), outcome(tmp_path / "single"))
    packed, single = ((tmp_path / name / "study.json").read_text() for name in ("packed", "single"))
    assert packed == single


@pytest.mark.parametrize("seed", [1, 2])
def test_neither_pack_members_nor_deaths_change_the_results(packed_sweep, tmp_path, seed):
    packed_sweep(tmp_path / "undisturbed")
    deaths = random.Random(seed).sample(range(25), 6)
    packed_sweep(tmp_path / "disturbed", max_members=3, seed=seed, deaths=deaths)
    assert_close(outcome(tmp_path / "disturbed"), outcome(tmp_path / "undisturbed"))


@pytest.mark.parametrize(
    ("max_members", "expected"), [(0, []), (2, ["one"])], ids=["single run", "pack"]
)
def test_only_a_pack_reads_its_removed_runs(planner, corpus, monkeypatch, max_members, expected):
    trials = []
    monkeypatch.setattr(reassign, "removed_runs", lambda trial: trials.append(trial) or set())
    packer = Packer(planner, corpus, max_members=max_members)
    config = Dispatcher(packer, SilentConsole(), max_workers=1).suggest("one")
    worker = local_worker(config, corpus, "one")
    assert [epoch for _, epoch, *_ in worker.step()["runs"]] == [1] * max(1, max_members)
    worker.cleanup()
    assert trials == expected


@pytest.mark.parametrize(
    ("max_members", "workers", "expected"),
    [(None, 2, [3, 3]), (2, 2, [2, 2, 1, 1]), (None, 1, [6]), (4, 1, [3, 3]), (0, 2, [1] * 6)],
)
def test_ready_runs_are_divided_evenly_over_idle_workers(
    planner, corpus, max_members, workers, expected
):
    """Six runs are ready: two settings of three points."""
    packer, sizes = Packer(planner, corpus, max_members=max_members), []
    while pack := packer.start_pack(max(1, workers - len(sizes) % workers)):
        sizes.append(len(pack))
        assert all(packer.is_packed(run) == (max_members != 0) for run in pack)
    assert sizes == expected


def die(dispatcher, trial):
    """Let a trial die until it is not restarted; return the folders of each attempt."""
    attempts = []
    for i in range(MAX_FAILURES + 1):
        config = dispatcher.packs[trial].config if i == 0 else dispatcher.suggest(trial)
        attempts.append(config["folders"])
        dispatcher.on_trial_complete(trial, error=True)
    return attempts


def test_the_runs_of_a_pack_that_died_too_often_are_tried_alone(planner, corpus):
    packer = Packer(planner, corpus, max_members=None)
    dispatcher = Dispatcher(packer, SilentConsole(), max_workers=2)
    died = dispatcher.suggest("first")["folders"]
    assert die(dispatcher, "first") == [died] * (MAX_FAILURES + 1)
    packs = {}
    while pack := dispatcher.suggest(name := str(len(packs))):
        packs[name] = pack["folders"]
    retried = {name: pack for name, pack in packs.items() if set(pack) & set(died)}
    assert sorted(retried.values()) == [[folder] for folder in sorted(died)]
    die(dispatcher, next(iter(retried)))
    failed = [r for p in planner.points for r in p.runs.values() if r.status == "failed"]
    assert [run.reason for run in failed] == ["died 4 times"]


@pytest.mark.parametrize(("text", "max_members"), [("auto", None), ("off", 0), ("8", 8)])
def test_fuse_is_parsed(text, max_members):
    assert parse_fuse(text) == max_members


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.5", ""])
def test_an_invalid_fuse_is_refused(text):
    with pytest.raises(UserError, match=r"--fuse .* is not auto, off or a number"):
        parse_fuse(text)


def test_prepare_computes_all_that_the_start_of_the_first_runs_needs(planner, corpus, monkeypatch):
    run_config._model_facts.cache_clear()
    packer = Packer(planner, corpus, max_members=None)
    packer.prepare()
    assert not planner.points[0].running
    monkeypatch.setattr("lmzoo.train.run_config.audit_verdict", None)  # a call would fail
    monkeypatch.setattr("lmzoo.sweep.packing.reason_not_packable", None)
    assert packer.start_pack(1)


def test_prepare_covers_only_the_first_of_many_runs(planner, corpus, monkeypatch):
    configs = []
    monkeypatch.setattr("lmzoo.sweep.packing.PREPARED_RUNS", 2)
    monkeypatch.setattr(
        "lmzoo.sweep.packing.add_model_facts", lambda config, _: configs.append(config)
    )
    Packer(planner, corpus, max_members=None).prepare()
    assert configs == [run.config for run in planner.ready()[:2]]
    assert len(planner.ready()) > 2
