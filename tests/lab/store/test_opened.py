"""What programs read, and what a change of it means."""

import os
import subprocess
import sys

import pytest

from lmzoo.base.errors import ProgramError
from lmzoo.lab.store.opened import SEEN, check_files, digest, read_log, variables, with_hook

SCRIPT = """import helper, os, sitecustomize
open("old.csv").read(), open("new.csv", "w").write("x"), open("new.csv").read()
os.system("cp old.csv copy.csv")
open("copy.csv").read(), open(".hidden").read()
assert sitecustomize.OWN
"""


def test_python_notes_what_it_reads(tmp_path):
    files = {
        "t.py": SCRIPT, "lib/helper.py": "", "lib/sitecustomize.py": "OWN = True", "old.csv": "1",
        ".hidden": "", "logs/run/x": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1e9, 1e9))
    log = tmp_path / "logs/run/log"
    command = with_hook(f"PYTHONPATH=lib {sys.executable} t.py")
    for _ in range(2):  # the second time, helper is compiled
        env = {**os.environ, **variables(log)}
        subprocess.run(command, shell=True, cwd=tmp_path, env=env, check=True)
        read = read_log(log, tmp_path)
        assert read.pop("copy.csv") == "+" + digest(tmp_path / "old.csv")
        known = {name: digest(tmp_path / name) for name in ("t.py", "lib/helper.py", "old.csv")}
        read.pop("lib/sitecustomize.py", None)
        assert read == {**known, "new.csv": "-"}


@pytest.mark.parametrize(
    ("planned", "read", "fails"),
    [
        ("now", None, False),
        ("old", None, True),
        ("now", "now", False),
        ("now", "old", True),  # it was changed and taken back
        ("old", "-", False),  # the program's own output
        (None, "+old", True),
        (None, "+now", False),
    ],
)
def test_a_run_whose_files_changed_is_no_result(planned, read, fails, tmp_path):
    file = tmp_path / "a"
    file.write_text("old")
    marks = {"old": digest(file), "-": "-", "+old": "+" + digest(file)}
    file.write_text("now")
    marks |= {"now": digest(file), "+now": "+" + digest(file)}
    given = [{} if mark is None else {"a": marks[mark]} for mark in (planned, read)]
    if not fails:
        return check_files(*given, tmp_path)
    with pytest.raises(ProgramError, match="a has changed since the sweep began"):
        check_files(*given, tmp_path)


def test_a_file_that_differs_between_two_runs_of_a_process_is_shared(tmp_path):
    file = tmp_path / "best.pt"
    for text in "ab":
        file.write_text(text)
        read = {"best.pt": "+" + digest(file)}
        if text == "a":
            check_files({}, read, tmp_path)
    with pytest.raises(ProgramError, match=r"best\.pt .* a file of its own"):
        check_files({}, read, tmp_path)
    SEEN.clear()
    check_files({}, read, tmp_path)
