"""The source code that Ray sends to the nodes of a cluster.

The version installed on a node may be older than the one that started the sweep.
"""

import os
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError

ROOT = Path(__file__).parents[3]
"""The repository, or site-packages if the package is installed."""
EXCLUDED = [".git", ".venv", "runs", "docs", "tests", "benchmarks", "drills", "**/__pycache__"]
"""Parts of the repository that a node does not need."""
MAX_BYTES = 200_000_000
"""The largest folder of a study that is sent; Ray itself refuses 500 MB after compression."""


def runtime_env() -> dict[str, Any]:
    """Return Ray's runtime environment with the repository; {} if the package is installed."""
    if not (ROOT / "pyproject.toml").exists():
        return {}
    return {"working_dir": str(ROOT), "excludes": EXCLUDED}


def folder_env(folder: Path) -> dict[str, Any]:
    """Return Ray's runtime environment with a folder of the user, and with this package.

    A node needs the installed package if this one is installed.

    Raises:
        UserError: The folder is too large.
    """
    size = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in (*EXCLUDED, "__pycache__")]
        size += sum(Path(path, name).lstat().st_size for name in names)
        if size > MAX_BYTES:
            raise UserError(
                f"{folder} has more than {MAX_BYTES // 10**6} MB, which is too much to send to a "
                "cluster; move the study and its modules into a folder of their own"
            )
    package = {"py_modules": [str(ROOT / "lmzoo")]} if runtime_env() else {}
    return {"working_dir": str(folder), "excludes": EXCLUDED, **package}
