"""A study whose runs are archived, and one that is damaged, decide and read as the whole one."""

import contextlib
import dataclasses
import os
import random
import shutil
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis import stored
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.study_parquet import read_rows, save_study
from lmzoo.lab.store import archive
from lmzoo.lab.store.archive import FOLDER, archive_runs, archived_runs, read_run_file, restore_run
from lmzoo.lab.store.records import CONFIG, RECORDS, SETTINGS, STUDY
from lmzoo.lab.study import study_store
from tests.lab.sweep import local_sweep
from tests.lab.sweep.fake_runs import open_fake_run
from tests.toy_study import toy_study

FACTS = {"score": "exact", "leaks": "", "parameters": 1}


def open_run(store, planned, corpus):
    planned.config |= FACTS
    return open_fake_run(store, planned, corpus)


sweep = partial(local_sweep.sweep, open_run=open_run)


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(archive, "RUNS", 3)
    monkeypatch.setattr(study_store, "RUNS", 3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, sentences, corpus, corpus_fields):
    path = tmp_path_factory.mktemp("store") / "toy"
    assert sweep(toy_study(sentences), corpus, corpus_fields, path)
    return path


@pytest.fixture
def undisturbed(tmp_path, finished):
    return shutil.copytree(finished, tmp_path / "undisturbed")


def lines(path):
    """Return run -> its records, after the archived runs got folders again."""
    for run in [run for run, _, _ in archived_runs(path)]:
        restore_run(path, run)
    return {file.parent.name: file.read_text() for file in path.glob(f"*/{RECORDS}")}


@pytest.mark.parametrize("steps", [25, 10**6])
def test_the_records_and_decisions_are_those_of_folders(
    steps, small, tmp_path, study, corpus, corpus_fields, undisturbed
):
    path = tmp_path / "toy"
    for life in range(200):
        if sweep(study, corpus, corpus_fields, path, seed=life, steps=steps, archives=True):
            break
    assert not [*path.glob(f"*/{CONFIG}")]
    assert len([*path.rglob("*")]) < len([*undisturbed.rglob("*")]) / 3
    assert (path / STUDY).read_text() == (undisturbed / STUDY).read_text()
    assert lines(path) == lines(undisturbed)


def test_a_larger_budget_continues_archived_runs(
    small, tmp_path, study, corpus, corpus_fields, undisturbed
):
    longer = dataclasses.replace(study, epochs=6)
    path = tmp_path / "toy"
    assert sweep(study, corpus, corpus_fields, path, archives=True)
    for each in (path, undisturbed):
        assert sweep(longer, corpus, corpus_fields, each, archives=each is path)
    assert lines(path) == lines(undisturbed)


def test_a_store_with_folders_is_archived_by_the_next_sweep_and_read_without_the_option(
    tmp_path, study, corpus, corpus_fields, undisturbed
):
    before = lines(undisturbed)
    assert sweep(study, corpus, corpus_fields, undisturbed, archives=True)
    assert not [*undisturbed.glob(f"*/{CONFIG}")]
    assert sweep(study, corpus, corpus_fields, undisturbed)
    assert not [*undisturbed.glob(f"*/{CONFIG}")], "a run was trained again"
    assert lines(undisturbed) == before


@pytest.mark.parametrize("stage", ["partial file", "config", "folder"])
def test_a_death_while_runs_are_archived_loses_none(stage, small, undisturbed, monkeypatch):
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    before = load_study(undisturbed)
    runs = [path.parent.name for path in sorted(undisturbed.glob(f"*/{CONFIG}"))]
    where, name = {
        "partial file": (os, "fsync"),
        "config": (archive.Path, "unlink"),
        "folder": (archive.shutil, "rmtree"),
    }[stage]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, die)
        with pytest.raises(KeyboardInterrupt):
            archive_runs(undisturbed, runs)
    _assert_equal(load_study(undisturbed), before)
    archive_runs(undisturbed, runs)
    _assert_equal(load_study(undisturbed), before)
    assert not [*undisturbed.glob("ended/.*")]


@pytest.mark.parametrize("after", ["the archive was read", "a config was read"])
def test_runs_that_are_archived_while_they_are_read_are_not_missing(
    after, undisturbed, monkeypatch
):
    before = load_study(undisturbed)
    runs = [path.parent.name for path in undisturbed.glob(f"*/{CONFIG}")]
    name = "_bytes"
    if after == "the archive was read":
        name = "archives"
    inner = getattr(stored, name)

    def then_archive(*arguments):
        found = inner(*arguments)
        archive_runs(undisturbed, runs)
        return found

    monkeypatch.setattr(stored, name, then_archive)
    _assert_equal(load_study(undisturbed), before)


def test_tables_and_saved_records_are_those_of_the_folders(small, undisturbed, tmp_path):
    runs = [path.parent.name for path in undisturbed.glob(f"*/{CONFIG}")]
    (undisturbed / runs[0] / "traceback.txt").write_bytes(b"a note")
    before = load_study(undisturbed)
    save_study(undisturbed, tmp_path / "before.parquet")
    os.utime(undisturbed / runs[0] / CONFIG, (0, 0))  # a zip has no times before 1980
    archive_runs(undisturbed, runs)
    _assert_equal(load_study(undisturbed), before)
    save_study(undisturbed, tmp_path / "after.parquet")
    assert read_rows(tmp_path / "after.parquet") == read_rows(tmp_path / "before.parquet")
    assert read_run_file(undisturbed, runs[0], "traceback.txt") == b"a note"
    assert read_run_file(undisturbed, runs[1], "traceback.txt") is None
    assert read_run_file(undisturbed, "unknown", RECORDS) is None


def test_an_archive_is_deleted_when_each_of_its_runs_has_a_later_one(small, undisturbed):
    runs = sorted(path.parent.name for path in undisturbed.glob(f"*/{CONFIG}"))[:4]
    archive_runs(undisturbed, runs)  # three in one file, one in the next
    before = {run: text for run, _, text in archived_runs(undisturbed)}
    for again in (runs[:1], runs[1:3]):
        for run in again:
            restore_run(undisturbed, run)
        archive_runs(undisturbed, again)
    files = sorted(path.name for path in undisturbed.glob("ended/*"))
    assert files == ["00002.zip", "00003.zip", "00004.zip"]
    assert {run: text for run, _, text in archived_runs(undisturbed)} == before


def test_the_folders_of_a_command_are_kept(undisturbed):
    run = next(path.parent for path in undisturbed.glob(f"*/{CONFIG}"))
    (run / "state" / "empty").mkdir(parents=True)
    (run / "state" / CONFIG).write_text("of the command")
    archive_runs(undisturbed, [run.name])
    assert [name for name, _, _ in archived_runs(undisturbed)] == [run.name]
    restore_run(undisturbed, run.name)
    assert (run / "state" / CONFIG).read_text() == "of the command"


def test_a_run_in_a_store_that_cannot_be_written_is_unpacked_elsewhere(undisturbed, monkeypatch):
    run = next(path.parent.name for path in undisturbed.glob(f"*/{CONFIG}"))
    records = (undisturbed / run / RECORDS).read_bytes()
    archive_runs(undisturbed, [run])
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != undisturbed)
    folder = restore_run(undisturbed, run)
    assert (folder / RECORDS).read_bytes() == records
    assert not (undisturbed / run).exists()


@pytest.mark.parametrize("place", [archive.FOLDER, "a run"])
def test_the_archive_deletes_nothing_where_a_link_leads(place, undisturbed, tmp_path):
    """Whoever writes into a shared store plants the link."""
    home = tmp_path / "home"
    run = next(p.parent.name for p in undisturbed.glob(f"*/{CONFIG}"))
    shutil.copytree(undisturbed / run, home)
    (home / ".bashrc").write_text("mine")
    before = sorted(home.iterdir())
    if place == "a run":
        shutil.rmtree(undisturbed / run)
        (undisturbed / run).symlink_to(home)
        archive_runs(undisturbed, [run])
        assert (undisturbed / run).is_symlink()
    else:
        (undisturbed / place).symlink_to(home)
        with pytest.raises(UserError, match="link out of"):
            archive_runs(undisturbed, [run])
    assert sorted(home.iterdir()) == before


def _assert_equal(actual, expected) -> None:
    assert actual.damaged == expected.damaged
    assert actual.runs.collect().equals(expected.runs.collect())
    assert actual.events.collect().equals(expected.events.collect())


def test_damage_of_an_archive_loses_at_most_the_runs_that_it_hits(undisturbed, study):
    """One byte, or the end, at 60 places: no traceback, no other number, and the file is named."""
    records = {f.parent.name: f.read_bytes() for f in undisturbed.glob(f"*/{RECORDS}")}
    archive_runs(undisturbed, sorted(records))
    (file,) = (undisturbed / archive.FOLDER).iterdir()
    whole = file.read_bytes()
    draw = random.Random(0)
    for case in range(60):
        at = draw.choice([len(whole) - 1 - draw.randrange(400), draw.randrange(len(whole))])
        change = bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :]
        file.write_bytes(whole[:at] + (change if case % 3 else b""))
        os.utime(file, ns=(case, case))
        found = {run: text for run, _, text in archived_runs(undisturbed)}
        assert all(text in (records[run], b"") for run, text in found.items())
        lost = {run for run in records if found.get(run) != records[run]}
        assert len(lost) <= 1 or not case % 3, "a changed byte is in one run"
        if lost == records.keys():
            with pytest.raises(UserError, match=r"no run of .* is readable"):
                load_study(undisturbed)
            continue
        damaged = load_study(undisturbed).damaged
        assert damaged or not lost
        for run in records:
            read_run_file(undisturbed, run, RECORDS)
    file.unlink()
    file.mkdir()
    with pytest.raises(UserError, match=r"00001.zip is damaged; 0 runs are read; no run of"):
        load_study(undisturbed)
    file.rmdir()
    file.symlink_to("nowhere")
    assert not [*archived_runs(undisturbed)]


CASES = {"byte": (12, 300), "file": (5, 60), "archive": (5, 20)}
"""Kind of damage -> cases that `make test` tries, and all of them."""


def damage(path: Path, kind: str, draw: random.Random) -> Path:
    """Change a byte of a store, or a file of it; return the file."""
    pattern = f"{FOLDER}/*.zip" if kind == "archive" else "*.*json"
    file = draw.choice(sorted(path.rglob(pattern)))
    data = file.read_bytes()
    at = draw.randrange(len(data) - 1)  # without its last newline a file says the same
    changed = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    torn = [data[:at], b"", bytes(len(data)), draw.randbytes(len(data)), None]
    content = draw.choice(torn) if kind == "file" else draw.choice([changed, changed, data[:at]])
    if kind == "byte":
        content = changed
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    return file


def numbers(path: Path) -> pl.DataFrame:
    columns = ["run", "event", "epoch", "valid_token", "token", "status"]
    return load_study(path).events.select(columns).sort(columns).collect()


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_damage_is_named_and_trained_again(
    kind, is_whole, finished, tmp_path, study, corpus, corpus_fields, caplog
):
    if kind == "archive":
        runs = [config.parent.name for config in sorted(finished.glob(f"*/{CONFIG}"))]
        finished = shutil.copytree(finished, tmp_path / "archived")
        archive_runs(finished, runs)
    table = study_ranking(finished)
    expected = numbers(finished)
    for case in range(CASES[kind][is_whole]):
        path = tmp_path / "toy"
        draw = random.Random(case)
        shutil.copytree(finished, path)
        file = damage(path, kind, draw)
        caplog.clear()
        with contextlib.suppress(UserError):  # one line
            folder = load_study(path)
            report = study_ranking(folder)
            same = report.frame.drop("seconds").equals(table.frame.drop("seconds"))
            counted = report.account != table.account
            assert same or folder.damaged or counted, (case, file)
        assert sweep(study, corpus, corpus_fields, path), (case, file)
        assert numbers(path).equals(expected), (case, file)
        assert file.name in (SETTINGS, RECORDS) or caplog.text or kind == "archive", (case, file)
        shutil.rmtree(path)
