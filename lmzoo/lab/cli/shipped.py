"""The studies and the cluster file of the package: in a wheel inside it, in a clone next to it."""

from pathlib import Path

PACKAGE = Path(__file__).parents[2]
FOLDERS = (PACKAGE / "shipped_studies", PACKAGE.parent / "sweeps")


def shipped_studies() -> dict[str, Path]:
    """Return name -> file of the studies that this installation has."""
    paths = next((found for folder in FOLDERS if (found := sorted(folder.glob("*.py")))), [])
    return {path.stem: path for path in paths}


def shipped_cluster() -> str:
    """Return the file of a cluster of machines that SSH reaches."""
    copied = FOLDERS[0] / "onprem.yaml"
    path = copied if copied.exists() else PACKAGE.parent / "clusters" / "onprem.yaml"
    return path.read_text("utf-8")
