"""Run the code of a documentation page as its reader would, in a folder of its own.

A block of `python` with a title is written to that file; one without a title is executed. A block
of `sh` is executed. A block after a comment `<!-- not run: REASON -->` is left out.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]*-->\s*)?"
    r'^```(?P<kind>python|sh)(?: title="(?P<title>[^"]*)")?\n(?P<code>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block of code."""

    kind: str
    title: str
    code: str


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that a reader can execute."""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if not found["skip"]:
            yield Block(found["kind"], found["title"] or "", found["code"])


@contextlib.contextmanager
def page_runner() -> Iterator[Callable[[Path, Path], str]]:
    """Yield a function that executes a page in a folder and returns what it prints.

    It raises AssertionError if a block fails; the message holds its code and its output.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"RAY_ADDRESS": "local", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    command = [sys.executable, "-m", "tests.docs.run_page"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as process:

        def run(page: Path, folder: Path) -> str:
            for name in ("sweeps", "analysis"):
                (folder / name).symlink_to(ROOT / name)
            print(f"{page}\t{folder}", file=process.stdin, flush=True)
            code = process.stdout.readline()
            printed = (folder / "printed").read_text()
            assert code == "0\n", printed
            return printed

        yield run
