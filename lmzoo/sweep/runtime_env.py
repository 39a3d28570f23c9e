"""The source that a cluster's nodes run: the one the sweep was started from.

What a node has installed may be older. Ray sends this along and unpacks it on each node.
"""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STAYS = [".git", ".venv", "runs", "docs", "tests", "benchmarks", "drills", "**/__pycache__"]
"""What a node does not need of the repository."""


def runtime_env() -> dict[str, Any]:
    """Ray's description of the source; {} for an installed package, which nodes have as well."""
    if not (ROOT / "pyproject.toml").exists():
        return {}
    return {"working_dir": str(ROOT), "excludes": STAYS}
