"""Execute the blocks of pages in order: each line of stdin has a page and a folder.

Pages and commands run in forks of this process, which has imported what most commands need. A sweep
trains in its own process, without Ray, which has tests of its own; the slow test of the README
types its commands. Splits of captions have an eighth of their sentences.
"""

import glob
import itertools
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import lmzoo.cli.main
import lmzoo.data.captions as captions
import lmzoo.lab.analysis.ranking_table
import lmzoo.lab.analysis.report.page
import lmzoo.lab.sweep.driver.execution as execution
import lmzoo.lab.sweep.worker.pack
import lmzoo.zoo
from tests.docs.pages import Block, blocks
from tests.lab.sweep.local_fleet import Fleet, LocalWorker

sample_captions = captions.sample_captions
HERE = re.compile(r"(?:lmzoo|python [\w./]+\.py)(?:\s|$)")
"""Commands that a fork executes; a shell executes the others."""


def train_here(sweep, planner, packer, ray) -> bool:
    """Train the pending runs in this process, in place of `Sweep._train_pending`."""
    fleet = Fleet(planner, packer, [])
    worker = LocalWorker("0", fleet, planner.store.path, packer.corpus)
    for step in itertools.count():
        if fleet.done:
            break
        if assignment := worker.exchange(float(step)):
            worker.train(assignment)
    worker.pack.suspend()
    worker.lock.close()
    return planner.done


def few_captions(seed: int, split: str, count: int):
    """Sample an eighth of the sentences, in place of `captions.sample_captions`."""
    return sample_captions(seed, split, count // 8)


def fork(work: Callable[[], object]) -> int:
    """Call `work` in a child process; return its exit code."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except SystemExit as stop:
        code = 1
        if isinstance(stop.code, int):
            code = stop.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_command(line: str) -> int:
    """Execute one line of a `sh` block."""
    if line.startswith("source "):  # the reader's environment
        return 0
    if not HERE.match(line):
        return subprocess.run(["bash", "-ec", line]).returncode
    words = shlex.split(line, comments=True)
    # A shell puts files in place of a pattern.
    words = [name for word in words for name in (sorted(glob.glob(word)) or [word])]  # noqa: PTH207
    if words[0] == "lmzoo":
        sys.argv = words
        return fork(lmzoo.cli.main.main)
    sys.argv = words[1:]
    return fork(lambda: runpy.run_path(words[1], run_name="__main__"))


def commands(block: Block) -> Iterator[Callable[[], int]]:
    """The commands of a block."""
    if block.title:
        yield lambda: 0 * Path(block.title).write_text(block.code)
    elif block.kind == "python":
        yield lambda: fork(lambda: exec(block.code, {"__name__": "__main__"}))
    elif any(map(HERE.match, block.code.splitlines())) or block.code.startswith("source "):
        for line in block.code.replace("\\\n", " ").splitlines():
            yield lambda line=line: run_command(line)
    else:
        yield lambda: run_command(block.code)


def execute(page: str, folder: str):
    """Execute the blocks of a page in a folder; what is printed goes to its file `printed`."""
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    printed = os.open("printed", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(printed, stream)
    for block in blocks(Path(page)):
        for command in commands(block):
            if code := command():
                sys.stdout.write(f"exit code {code}:\n{block.code}")
                sys.exit(1)


if __name__ == "__main__":
    execution.Sweep._train_pending = train_here
    captions.sample_captions = few_captions
    sys.path[0] = ""
    for line in sys.stdin:
        page, _, folder = line.rstrip("\n").partition("\t")
        sys.stdout.write(f"{fork(partial(execute, page, folder))}\n")
        sys.stdout.flush()
