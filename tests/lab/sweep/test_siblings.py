"""Every recovery for every kind: what is lost x when x which run.

One study has a row of the zoo alone and two that share a pack, counts, a function with a state, one
without, and a command. Each test loses one thing of all of them at once. The numbers must be those
of a study that lost nothing.
"""

import errno
import gc
import os
import shutil
from pathlib import Path

import pytest

from lmzoo import Point
from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.store import writer
from lmzoo.lab.store.local import Store, retried
from lmzoo.lab.store.records import CHECKPOINT, CONFIG, RECORDS, STUDY, RunFolder
from lmzoo.lab.study.commands import Command
from tests.lab.sweep.local_fleet import fleet_sweep
from tests.toy_study import toy_study
from tests.trainables import own_programs
from tests.trainables.test_programs import SCRIPT, own_study

KINDS = (
    Point("function", own_programs.train, {"lr": 0.1}),
    Point("no state", own_programs.train_without_state, {"lr": 0.1}),
    Point("command", Command(SCRIPT), {"lr": 0.1}),
)
COUNTS = ("unigram count", "Kneser-Ney 5-gram")
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # a worker that dies closes nothing
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def go(sentences, corpus, corpus_fields):
    """Sweeps the study of all kinds in a folder, for so many epochs."""
    toy = toy_study(sentences)
    wide = Point("wide", "DLM46", {"width": 6})

    points = toy.points[:2] + (wide,) + KINDS
    of_rows = {"corpus": toy.corpus, "fields": toy.fields}

    def sweep(path: Path, epochs: int, **options) -> None:
        study = own_study(points, search={}, samples=1, seeds=1, epochs=epochs, **of_rows)
        fleet_sweep(study, corpus, corpus_fields, path, size=2, **options)

    return sweep


@pytest.fixture(scope="module")
def half(go, tmp_path_factory) -> Path:
    """The study after half of its epochs."""
    path = tmp_path_factory.mktemp("half") / "own"
    go(path, 2)
    return path


@pytest.fixture(scope="module")
def whole(go, half, tmp_path_factory) -> Path:
    path = shutil.copytree(half, tmp_path_factory.mktemp("whole") / "own")
    go(path, 4)
    return path


def numbers(path: Path) -> dict[tuple[str, str, int], float]:
    """Return (label, event, epoch) -> loss: of each epoch, counts have one, and of the test."""
    found = {}
    for config in path.glob(f"*/{CONFIG}"):
        folder = RunFolder(config.parent)
        label = folder.config["point"]["label"]
        for record in folder.records():
            event = record["event"]
            if event == "files":
                continue  # what a process has opened: another process opens other files
            epoch = record["epoch"]
            if epoch == 4 or (event == "epoch" and label not in COUNTS):
                found[label, event, epoch] = record.get("valid_token", record.get("token"))
    return found


def flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) // 2] ^= 4
    return bytes(changed)


LOSSES = {
    "empty": lambda data: b"",
    "torn": lambda data: data[: 2 * len(data) // 3],
    "flipped": flipped,
    "zeros": lambda data: bytes(len(data)),
    "gone": None,
}


@pytest.mark.parametrize("moment", ["half", "whole"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("file", [CONFIG, RECORDS, CHECKPOINT, STUDY])
def test_a_lost_file_costs_time_and_no_number(file, loss, moment, go, half, whole, tmp_path):
    stores = {"half": half, "whole": whole}
    path = shutil.copytree(stores[moment], tmp_path / "own")
    found = list(path.glob(file)) + list(path.glob(f"*/{file}"))
    if file != STUDY:
        # Each run has one.
        assert len(found) >= 4
    assert found
    damage = LOSSES[loss]
    for each in found:
        if damage is None:
            each.unlink()
        else:
            each.write_bytes(damage(each.read_bytes()))
    go(path, 4)
    assert numbers(path) == pytest.approx(numbers(whole), abs=2e-5)


@pytest.mark.parametrize("file", [CONFIG, RECORDS, CHECKPOINT])
def test_files_of_two_runs_that_are_swapped_cost_no_number(file, go, whole, tmp_path):
    path = shutil.copytree(whole, tmp_path / "own")
    one, *_, other = sorted(path.glob(f"*/{file}"))
    text = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(text)
    # A checkpoint has no results, so its damage is found when the run goes on.
    if file != CHECKPOINT:
        assert load_study(path).damaged
    go(path, 4)
    assert not load_study(path).damaged
    assert numbers(path) == pytest.approx(numbers(whole), abs=2e-5)


@pytest.mark.parametrize("deaths", [{1, 2, 3}, {5, 9, 14}])
def test_a_worker_that_dies_costs_no_number(deaths, go, half, whole, tmp_path):
    path = shutil.copytree(half, tmp_path / "own")
    go(path, 4, deaths=deaths)
    gc.collect()  # ends the programs of the workers that died
    assert numbers(path) == pytest.approx(numbers(whole), abs=2e-5)


@pytest.mark.parametrize("method", ["write", "append", "read"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_fails_is_retried_or_named(
    method, number, go, half, whole, tmp_path, monkeypatch
):
    """Every third operation fails once."""
    path = shutil.copytree(half, tmp_path / "own")
    inner = getattr(Store, method)
    calls = [0]

    def fail(self, *arguments, **options):
        calls[0] += 1
        if calls[0] % 3 == 0:
            raise OSError(number, os.strerror(number))
        return inner(self, *arguments, **options)

    monkeypatch.setattr(Store, method, retried(fail))
    monkeypatch.setattr(writer.time, "sleep", lambda seconds: None)
    if number == errno.EROFS:
        with pytest.raises(UserError, match=r"own.*: Read-only file system; fix this"):
            go(path, 4)
        return
    go(path, 4)
    monkeypatch.undo()
    assert numbers(path) == pytest.approx(numbers(whole), abs=2e-5)
