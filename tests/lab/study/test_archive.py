"""A study whose runs are archived, and one that is damaged, decide and read as the whole one."""

import os
import random
import shutil
from dataclasses import replace
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


@pytest.fixture(scope="module")
def sweep(corpus, corpus_fields):
    return partial(local_sweep.sweep, corpus=corpus, fields=corpus_fields, open_run=open_run)


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(archive, "RUNS", 3)
    monkeypatch.setattr(study_store, "RUNS", 3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, sentences, sweep):
    path = tmp_path_factory.mktemp("store") / "toy"
    assert sweep(toy_study(sentences), path=path)
    return path


@pytest.fixture
def undisturbed(tmp_path, finished):
    return shutil.copytree(finished, tmp_path / "undisturbed")


def archived(path) -> dict:
    """Return run -> its records, of the archived runs."""
    return {run: text for run, _, text in archived_runs(path)}


def folders(path) -> list[str]:
    """Return the runs that have folders."""
    return sorted(config.parent.name for config in path.glob(f"*/{CONFIG}"))


def lines(path) -> dict:
    """Return run -> its records, after the archived runs got folders again."""
    for run in archived(path):
        restore_run(path, run)
    return {run: (path / run / RECORDS).read_bytes() for run in folders(path)}


@pytest.mark.parametrize("steps", [25, 10**6])
def test_the_records_and_decisions_are_those_of_folders(
    steps, small, tmp_path, study, sweep, undisturbed
):
    path = tmp_path / "toy"
    for life in range(200):
        if sweep(study, path=path, seed=life, steps=steps, archives=True):
            break
    files = list(path.rglob("*"))
    usual = list(undisturbed.rglob("*"))
    assert folders(path) == []
    # A folder has several files, three runs have one.
    assert len(files) < len(usual) / 3
    assert (path / STUDY).read_text() == (undisturbed / STUDY).read_text()
    assert lines(path) == lines(undisturbed)


def test_a_larger_budget_continues_archived_runs(small, tmp_path, study, sweep, undisturbed):
    longer = replace(study, epochs=6)
    path = tmp_path / "toy"
    assert sweep(study, path=path, archives=True)
    assert sweep(longer, path=path, archives=True)
    assert sweep(longer, path=undisturbed)
    assert lines(path) == lines(undisturbed)


def test_a_store_with_folders_is_archived_by_the_next_sweep_and_read_without_the_option(
    tmp_path, study, sweep, undisturbed
):
    before = lines(undisturbed)
    assert sweep(study, path=undisturbed, archives=True)
    assert folders(undisturbed) == []
    assert sweep(study, path=undisturbed)
    assert folders(undisturbed) == [], "a run was trained again"
    assert lines(undisturbed) == before


def test_a_run_that_has_only_an_archive_is_not_archived_again(
    study, sweep, undisturbed, monkeypatch
):
    assert sweep(study, path=undisturbed, archives=True)
    again = []
    monkeypatch.setattr(study_store, "archive_runs", lambda path, runs: again.extend(runs))
    assert sweep(study, path=undisturbed, archives=True)
    assert again == []


STEPS = {
    "partial file": (os, "fsync"),
    "config": (archive.Path, "unlink"),
    "folder": (archive.shutil, "rmtree"),
}
"""Where an archive is written, and what was archived is removed."""


@pytest.mark.parametrize("stage", STEPS)
def test_a_death_while_runs_are_archived_loses_none(stage, small, undisturbed, monkeypatch):
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    before = load_study(undisturbed)
    runs = folders(undisturbed)
    where, name = STEPS[stage]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, die)
        with pytest.raises(KeyboardInterrupt):
            archive_runs(undisturbed, runs)
    _assert_equal(load_study(undisturbed), before)
    archive_runs(undisturbed, runs)
    _assert_equal(load_study(undisturbed), before)
    assert not list(undisturbed.glob("ended/.*"))


@pytest.mark.parametrize("after", ["the archive was read", "a config was read"])
def test_runs_that_are_archived_while_they_are_read_are_not_missing(
    after, undisturbed, monkeypatch
):
    before = load_study(undisturbed)
    runs = folders(undisturbed)
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
    runs = folders(undisturbed)
    first = undisturbed / runs[0]
    # A file that is no record.
    (first / "traceback.txt").write_bytes(b"a note")
    before = load_study(undisturbed)
    of_folders = tmp_path / "before.parquet"
    save_study(undisturbed, of_folders)
    # A zip has no times before 1980.
    os.utime(first / CONFIG, (0, 0))
    archive_runs(undisturbed, runs)
    _assert_equal(load_study(undisturbed), before)
    of_archive = tmp_path / "after.parquet"
    save_study(undisturbed, of_archive)
    assert read_rows(of_archive) == read_rows(of_folders)
    assert read_run_file(undisturbed, runs[0], "traceback.txt") == b"a note"
    assert read_run_file(undisturbed, runs[1], "traceback.txt") is None
    assert read_run_file(undisturbed, "unknown", RECORDS) is None


def test_an_archive_is_deleted_when_each_of_its_runs_has_a_later_one(small, undisturbed):
    runs = folders(undisturbed)[:4]
    # Three in one file, one in the next.
    archive_runs(undisturbed, runs)
    before = archived(undisturbed)
    for again in (runs[:1], runs[1:3]):
        for run in again:
            restore_run(undisturbed, run)
        archive_runs(undisturbed, again)
    files = [path.name for path in undisturbed.glob("ended/*")]
    assert sorted(files) == ["00002.zip", "00003.zip", "00004.zip"]
    assert archived(undisturbed) == before


@pytest.fixture
def run(undisturbed):
    """The folder of the first run."""
    return undisturbed / folders(undisturbed)[0]


def test_the_folders_of_a_command_are_kept(undisturbed, run):
    (run / "state" / "empty").mkdir(parents=True)
    (run / "state" / CONFIG).write_text("of the command")
    archive_runs(undisturbed, [run.name])
    assert list(archived(undisturbed)) == [run.name]
    restore_run(undisturbed, run.name)
    assert (run / "state" / CONFIG).read_text() == "of the command"


def test_a_run_in_a_store_that_cannot_be_written_is_unpacked_elsewhere(
    undisturbed, run, monkeypatch
):
    records = (run / RECORDS).read_bytes()
    archive_runs(undisturbed, [run.name])
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != undisturbed)
    folder = restore_run(undisturbed, run.name)
    assert (folder / RECORDS).read_bytes() == records
    assert not run.exists()


@pytest.fixture
def home(run, tmp_path):
    """A folder elsewhere that looks like a run."""
    path = shutil.copytree(run, tmp_path / "home")
    (path / ".bashrc").write_text("mine")
    return path


def test_the_archive_deletes_no_run_where_a_link_leads(undisturbed, run, home):
    """Whoever writes into a shared store plants the link."""
    before = sorted(home.iterdir())
    shutil.rmtree(run)
    run.symlink_to(home)
    archive_runs(undisturbed, [run.name])
    assert run.is_symlink()
    assert sorted(home.iterdir()) == before


def test_an_archive_that_is_a_link_out_of_the_store_is_refused(undisturbed, run, home):
    before = sorted(home.iterdir())
    (undisturbed / FOLDER).symlink_to(home)
    with pytest.raises(UserError, match="link out of"):
        archive_runs(undisturbed, [run.name])
    assert sorted(home.iterdir()) == before


def _assert_equal(actual, expected) -> None:
    assert actual.damaged == expected.damaged
    for name in ("runs", "events"):
        found = getattr(actual, name).collect()
        assert found.equals(getattr(expected, name).collect())


def with_a_bit_changed(data: bytes, place: int, draw: random.Random) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


@pytest.fixture
def records(undisturbed):
    """Run -> its records, after all runs were archived in one file."""
    found = lines(undisturbed)
    archive_runs(undisturbed, sorted(found))
    return found


@pytest.fixture
def archive_file(undisturbed, records):
    (file,) = undisturbed.glob(f"{FOLDER}/*")
    return file


def test_damage_of_an_archive_loses_at_most_the_runs_that_it_hits(
    undisturbed, records, archive_file
):
    """One byte, or the end, at 60 places: no traceback, no other number, and the file is named."""
    whole = archive_file.read_bytes()
    size = len(whole)
    draw = random.Random(0)
    for case in range(60):
        # Half of the places are near the end, where a zip has its directory.
        near_the_end = size - 1 - draw.randrange(400)
        place = draw.choice([near_the_end, draw.randrange(size)])
        most = 1
        damaged = with_a_bit_changed(whole, place, draw)
        if case % 3 == 0:
            most = len(records)
            damaged = whole[:place]
        archive_file.write_bytes(damaged)
        os.utime(archive_file, ns=(case, case))
        assert_only_lost(undisturbed, records, most)


def assert_only_lost(path, records, most) -> None:
    """Assert that at most so many runs are lost, which is said, and that no other run differs."""
    found = archived(path)
    assert found.keys() <= records.keys()
    lost = set()
    for run, text in records.items():
        if found.get(run) != text:
            lost.add(run)
            assert not found.get(run)
    assert len(lost) <= most
    if lost == records.keys():
        with pytest.raises(UserError, match=r"no run of .* is readable"):
            load_study(path)
        return
    if lost:
        assert load_study(path).damaged
    for run in records:
        read_run_file(path, run, RECORDS)


def test_a_folder_in_the_place_of_an_archive_is_damage(undisturbed, archive_file):
    archive_file.unlink()
    archive_file.mkdir()
    with pytest.raises(UserError, match=r"00001.zip is damaged; 0 runs are read; no run of"):
        load_study(undisturbed)


def test_a_broken_link_in_the_place_of_an_archive_has_no_runs(undisturbed, archive_file):
    archive_file.unlink()
    archive_file.symlink_to("nowhere")
    assert archived(undisturbed) == {}


CASES = {"byte": (12, 300), "file": (5, 60), "archive": (5, 20)}
"""Kind of damage -> cases that `make test` tries, and all of them."""


def damage(path: Path, kind: str, draw: random.Random) -> Path:
    """Change a byte of a store, or a file of it; return the file."""
    pattern = "*.*json"
    if kind == "archive":
        pattern = f"{FOLDER}/*.zip"
    files = sorted(path.rglob(pattern))
    file = draw.choice(files)
    data = file.read_bytes()
    size = len(data)
    # Without its last newline a file says the same.
    place = draw.randrange(size - 1)
    changed = with_a_bit_changed(data, place, draw)
    begin = data[:place]
    contents = {
        "byte": [changed],
        "archive": [changed, changed, begin],
        "file": [begin, b"", bytes(size), draw.randbytes(size), None],
    }
    content = draw.choice(contents[kind])
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    return file


def numbers(path: Path) -> pl.DataFrame:
    columns = ["run", "event", "epoch", "valid_token", "token", "status"]
    return load_study(path).events.select(columns).sort(columns).collect()


WHOLE = pytest.param(True, marks=pytest.mark.slow)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("is_whole", [False, WHOLE])
def test_damage_is_named_and_trained_again(
    kind, is_whole, finished, tmp_path, study, sweep, caplog
):
    if kind == "archive":
        runs = folders(finished)
        finished = shutil.copytree(finished, tmp_path / "archived")
        archive_runs(finished, runs)
    table = study_ranking(finished)
    expected = numbers(finished)
    some, many = CASES[kind]
    cases = some
    if is_whole:
        cases = many
    for case in range(cases):
        path = tmp_path / "toy"
        shutil.copytree(finished, path)
        file = damage(path, kind, random.Random(case))
        # A bit in the name of the checksum takes the check away, and nothing else.
        is_unchecked = kind == "byte" and b'"crc"' not in file.read_bytes()
        caplog.clear()
        assert_damage_is_said(path, table, (case, file))
        assert sweep(study, path=path), (case, file)
        assert numbers(path).equals(expected), (case, file)
        if not is_unchecked and kind != "archive" and file.name not in (SETTINGS, RECORDS):
            assert caplog.text, (case, file)
        shutil.rmtree(path)


def assert_damage_is_said(path, table, case) -> None:
    """Assert that the ranking is that of the whole store, or says what it lacks."""
    try:
        folder = load_study(path)
        report = study_ranking(folder)
    except UserError:
        return
    found = report.frame.drop("seconds")
    if not found.equals(table.frame.drop("seconds")):
        assert folder.damaged or report.account != table.account, case
