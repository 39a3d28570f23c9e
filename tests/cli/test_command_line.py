"""Command lines start and end without looking for garbage among what stays."""

import gc
import subprocess
import sys

import pytest

from lmzoo.command_line import importing

ENDING = """
import atexit, gc
from lmzoo.command_line import run

atexit.register(lambda: print(gc.get_freeze_count() > 10_000))  # what comes first is done last
run(lambda standalone_mode: 3)
"""


def test_nothing_is_collected_while_modules_are_imported() -> None:
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), importing():
        import lmzoo.nothing_of_this_name  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_who_has_switched_collection_off_finds_it_off() -> None:
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_at_the_end_all_objects_are_left_alone() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "True\n", "")
