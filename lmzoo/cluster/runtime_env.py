"""The source code that Ray sends to the nodes of a cluster.

The version installed on a node may be older than the one that started the sweep.
"""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
"""The repository, or site-packages if the package is installed."""
EXCLUDED = [".git", ".venv", "runs", "docs", "tests", "benchmarks", "drills", "**/__pycache__"]
"""Parts of the repository that a node does not need."""


def runtime_env() -> dict[str, Any]:
    """Return Ray's runtime environment with the repository; {} if the package is installed."""
    if not (ROOT / "pyproject.toml").exists():
        return {}
    return {"working_dir": str(ROOT), "excludes": EXCLUDED}
