"""Run the code of a documentation page as its reader would, in a folder of its own.

A block of `python` with a title is written to that file; one without a title is executed. A block
of `sh` is executed. A block after a comment `<!-- not run: REASON -->` is left out.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


def run_page(page: Path, folder: Path) -> str:
    """Execute the blocks in order and return what they print.

    Raises:
        AssertionError: a block fails; the message holds its code and its output.
    """
    for name in ("sweeps", "analysis"):
        (folder / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", str(page)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
