"""SIGTERM and SIGHUP end a sweep in seconds, with one line and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from lmzoo.base.stops import GRACE_SECONDS
from lmzoo.lab.sweep.driver.execution import _start_ranking

from .processes import ROOT, epochs_on_disk, find_below, kill, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.xdist_group("ray")]
SECONDS = GRACE_SECONDS + 10
"""How long the end may take on a busy machine."""
ENDLESS = ("--epochs", "100000", "--samples", "1", "--seeds", "1", "--max-concurrent", "1")


def handle_as_default(ignored: tuple[int, ...] = ()) -> None:
    """Let a new process ignore these signals only, also if the tests run under nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        handler = signal.SIG_DFL
        if number in ignored:
            handler = signal.SIG_IGN
        signal.signal(number, handler)


def start(script: Path, folder: Path, ignored: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Start an endless sweep as the leader of a group of processes, with `folder` for all files."""

    (folder / "tmp").mkdir()
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
        "TMPDIR": str(folder / "tmp"),
        # The path of a socket has at most 107 bytes.
        "RAY_TMPDIR": "/tmp",
    }
    # A test does not join the cluster of its user.
    env.pop("RAY_ADDRESS", None)
    words = [sys.executable, str(script), *ENDLESS, "--out", str(folder / "runs")]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=env,
            start_new_session=True, preexec_fn=partial(handle_as_default, ignored),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "group", "ignored", "while_ray_starts"),
    [
        (signal.SIGTERM, False, (signal.SIGINT, signal.SIGHUP), True),
        (signal.SIGHUP, True, (signal.SIGINT,), False),
    ],
    ids=["nohup-starting", "group-training"],
)
def test_a_signal_ends_the_sweep(number, group, ignored, while_ray_starts, script, tmp_path):
    driver = start(script, tmp_path, ignored)
    try:
        log = tmp_path / "log"
        if while_ray_starts:
            wait_until(lambda: b"starting Ray" in log.read_bytes())
            time.sleep(1)
        else:
            stores = tmp_path / "runs"
            wait_until(lambda: driver.poll() or any(map(epochs_on_disk, stores.glob("*"))))
            raylets = find_below(driver.pid, "/raylet/raylet")
            assert raylets, f"{driver.returncode}: {log.read_text()}"
            assert driver.pid not in map(os.getpgid, raylets), "the signal would reach Ray"
        if group:
            os.killpg(driver.pid, number)
        else:
            os.kill(driver.pid, number)
        code = driver.wait(SECONDS)
        # What a shell reports of a program that was interrupted.
        assert code == 130, f"{code}: {log.read_text()}"
        assert log.read_text().splitlines()[-1].startswith("interrupted; run the same command")
        assert "Traceback" not in log.read_text()
        assert not list((tmp_path / "tmp").iterdir()), "temporary files are left"
        assert not list(Path("/tmp/ray").glob(f"session_*_{driver.pid}")), "Ray's logs are left"
        assert not list(tmp_path.glob("runs/*/.driver"))
        assert not list(tmp_path.glob("runs/*/.worker-*"))
    finally:
        kill(driver)


@pytest.mark.parametrize(
    ("number", "ignored"),
    [(signal.SIGINT, ()), (signal.SIGHUP, ()), (signal.SIGTERM, (signal.SIGINT, signal.SIGHUP))],
)
def test_every_command_says_that_it_was_stopped(number, ignored):
    """Typer turns the interrupt into an exit code without a line. nohup ignores two signals.

    Another signal comes while Python ends.
    """
    program = (
        "import atexit, os, time\n"
        f"atexit.register(os.kill, os.getpid(), {int(number)})\n"
        "from lmzoo.base.command_line import run_command\n"
        "def command():\n"
        f"    for number in {[*map(int, ignored), int(number)]}: os.kill(os.getpid(), number)\n"
        "    time.sleep(60)\n"
        "run_command(command)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, cwd=ROOT, preexec_fn=partial(handle_as_default, ignored),
    )  # fmt: skip
    assert run.returncode == 130
    assert run.stdout == ""
    assert run.stderr.strip() == "stopped"


def test_a_signal_of_the_terminal_does_not_reach_the_ranking(tmp_path):
    ranking = _start_ranking(str(tmp_path))
    try:
        assert os.getsid(ranking.pid) != os.getsid(0)
    finally:
        ranking.kill()
        ranking.wait()
