"""How long a sweep on a terminal says nothing, and whether a line of Ray reaches the terminal.

    python -m drills.silence FOLDER [MOMENT ...]
    python -m drills.silence FOLDER --smoke      one sweep says its plan, without Ray

A row for each engine and moment: the whole sweep, a worker that is killed, Ctrl-C, a full disk.
A disk needs root. A spinner that moves is no silence. The exit code is 1 if a line is Ray's, or if
the whole sweep fails.
"""

import argparse
import contextlib
import fcntl
import os
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from drills.sentences import write_sentences
from tests.lab.store.small_disk import fill_disk, small_disk
from tests.lab.sweep.processes import ROOT, kill_worker

STUDY = """
from pathlib import Path
from lmzoo import main
from tests.toy_study import toy_study
if __name__ == "__main__":
    main(toy_study(Path({!r})))
"""
OF_RAY = re.compile(
    r"\((?:raylet|pid=|autoscaler|\w+ pid=)|ray\.|[\w/]*ray/|raylet|Tune|Trial|Traceback|"
    r"^\[?\d{4}-\d\d-\d\d|[A-Z]\d{4} \d\d:|ActorError|SIG[A-Z]+",
    re.MULTILINE,
)
"""What Ray, its log and an error of Python look like."""
OWN = re.compile(r".*(?:starting Ray|or Ray was ended|\(memory, `ray stop`\)).*")
"""The sweep's own lines that name Ray."""
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def kill_one(terminal: "Terminal", folder: Path) -> None:
    """Kill a worker."""
    kill_worker(terminal.process.pid)


def type_ctrl_c(terminal: "Terminal", folder: Path) -> None:
    """Type Ctrl-C."""
    os.write(terminal.own, b"\x03")


def fill(terminal: "Terminal", folder: Path) -> None:
    """Fill the disk of the store for some seconds."""
    file = folder / "filler"
    fill_disk(file)
    terminal.read_for(6)
    file.unlink()


MOMENTS: dict[str, Callable[["Terminal", Path], None] | None] = {
    "whole": None,
    "worker killed": kill_one,
    "Ctrl-C": type_ctrl_c,
    "disk full": fill,
}


class Terminal:
    """A command on a terminal of its own, and when it wrote what."""

    def __init__(self, words: list[str]) -> None:
        self.begun = time.monotonic()
        self.written: list[tuple[float, str]] = []
        self.own, other = os.openpty()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
        self.process = subprocess.Popen(
            words, stdin=other, stdout=other, stderr=other, env=environment, cwd=ROOT,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(other)

    def read(self, until: Callable[[], bool]) -> None:
        """Read what the command writes until this is true, or until it has ended."""
        while not until():
            ready, _, _ = select.select([self.own], [], [], 0.1)
            if ready:
                try:
                    text = os.read(self.own, 65536).decode(errors="replace")
                except OSError:  # the terminal of a command that has ended
                    break
                self.written.append((time.monotonic() - self.begun, text))
            elif self.process.poll() is not None:
                break

    def read_for(self, seconds: float) -> None:
        """Read what the command writes in so many seconds."""
        deadline = time.monotonic() + seconds
        self.read(lambda: time.monotonic() > deadline)

    @property
    def text(self) -> str:
        return CODES.sub("", "".join(text for _, text in self.written))

    def longest(self) -> tuple[float, float, str]:
        """Return the longest silence after the first line, when it began, and the line before."""
        times = [at for at, _ in self.written] + [time.monotonic() - self.begun]
        gaps = [(after - before, before) for before, after in pairwise(times)]
        gap, since = max(gaps)
        before = "".join(text for at, text in self.written if at <= since)
        lines = CODES.sub("", before).split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return gap, since, (said or ["the command"])[-1][:60]


def watch(folder: Path, engine: str, moment: str, *more: str) -> tuple[str, bool]:
    """Run a sweep on a terminal; return what was seen, and whether it has a fault."""
    write_sentences(folder / "text.txt", 60)
    script = folder / "toy.py"
    script.write_text(STUDY.format(str(folder / "text.txt")))
    store = folder / "runs"
    options = ["--out", str(store), "--engine", engine, "--epochs", "60", "--fuse", "off", *more]
    terminal = Terminal([sys.executable, str(script), *options])
    act = MOMENTS[moment]
    if act is not None:
        # A run has an epoch, so workers train.
        terminal.read(lambda: any(store.glob("*/*/records.ndjson")))
        terminal.read_for(3)
        act(terminal, folder)
    terminal.read(lambda: False)
    code = terminal.process.wait()
    seconds = time.monotonic() - terminal.begun
    gap, since, line = terminal.longest()
    lines = [text for text in terminal.text.split("\n") if not OWN.match(text)]
    found = sorted({text.strip()[:100] for text in lines if OF_RAY.search(text)})
    name = moment.replace(" ", "_")
    (folder.parent / f"{engine}-{name}.txt").write_text(terminal.text)
    first, _ = terminal.written[0]
    silence = f"longest silence after it {gap:.1f} s, at {since:.0f} s, after {line!r}"
    seen = f"code {code}, {seconds:.0f} s, first line at {first:.1f} s, {silence}"
    has_fault = bool(found) or (moment == "whole" and code != 0)
    return f"{seen}; of Ray: {found or 'nothing'}", has_fault


def main(folder: str, *moments: str, smoke: bool) -> int:
    """Print a row for each engine and moment; return the exit code."""
    failed = False
    engines = ["tune", "packs"]
    more = []
    if smoke:
        moments = ("whole",)
        engines = ["packs"]
        more = ["--dry-run"]
    for moment in moments or MOMENTS:
        for engine in engines:
            own = Path(folder).resolve() / f"{engine}-{moment.replace(' ', '_')}"
            own.mkdir(parents=True)
            with contextlib.ExitStack() as ending:
                if moment == "disk full":
                    own = ending.enter_context(small_disk(own / "disk", 24))
                text, has_fault = watch(own, engine, moment, *more)
            failed = failed or has_fault
            print(f"{moment:13} {engine:5}  {text}", flush=True)  # noqa: T201
    return int(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="where the sweeps write")
    parser.add_argument("moments", nargs="*", help=", ".join(MOMENTS))
    parser.add_argument("--smoke", action="store_true", help="plan one sweep only")
    given = parser.parse_args()
    sys.exit(main(given.folder, *given.moments, smoke=given.smoke))
