"""Which code trains: the version of the package and the commit of the clone."""

import functools
import os
import subprocess
from pathlib import Path

from lmzoo.base.version import __version__

ROOT = Path(__file__).parents[3]
"""The clone, or site-packages if the package is installed."""
COMMIT = "LMZOO_COMMIT"
"""Environment variable with the commit, for copies of a clone that have no history."""
SECONDS = 10.0


@functools.cache
def code_version() -> dict[str, str]:
    """Return the package's version as `lmzoo` and the short hash of the commit as `commit`.

    A "+" follows the hash if tracked files have changes. The commit is "" outside a clone.
    """
    return {"lmzoo": __version__, "commit": os.environ.get(COMMIT) or find_commit(ROOT)}


def find_commit(root: Path) -> str:
    """Return the commit of the clone in a folder; "" if it is none or git fails."""
    if not (root / ".git").exists():  # git would find a repository above site-packages
        return ""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
