"""Temporary folders end with their process; what a killed one leaves, the next one deletes."""

import subprocess
import sys

import pytest

from lmzoo.lab.store.local import TEMPORARY, delete_abandoned, temporary_folder

MAKE = "from lmzoo.lab.store.local import temporary_folder as make; print(make('x'), flush=True); "


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def process(end: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", MAKE + end]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("end", "left"),
    [("pass", 0), ("import os; os._exit(1)", 1), ("import os; os.kill(os.getpid(), 9)", 1),
     ("import os; os.fork() or exit(); os.wait()", 0)],
)  # fmt: skip
def test_what_a_killed_process_leaves_is_deleted_by_the_next_one(tmp_path, end, left):
    with process(end) as ended:
        ended.communicate()
    assert len([*tmp_path.iterdir()]) == left
    folder = temporary_folder("y")
    assert [*tmp_path.iterdir()] == [folder]


def test_the_folder_of_a_living_process_and_files_of_others_stay(tmp_path):
    others = tmp_path / f"{TEMPORARY}file", tmp_path / f"{TEMPORARY}link", tmp_path / "other"
    others[0].touch()
    others[1].symlink_to(tmp_path / "other")
    (others[2] / "data").mkdir(parents=True)
    with process("input()") as living:
        name = living.stdout.readline().strip()
        delete_abandoned()
        assert {*tmp_path.iterdir()} == {*others, tmp_path / name}
        assert [*others[2].iterdir()]
        living.communicate("\n")
