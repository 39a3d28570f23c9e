"""The studies and the cluster file of the package: in a wheel inside it, in a clone next to it."""

from pathlib import Path

PACKAGE = Path(__file__).parents[2]
FOLDERS = (PACKAGE / "shipped_studies", PACKAGE.parent / "sweeps")


def shipped_studies() -> dict[str, Path]:
    """Return name -> file of the studies that this installation has."""
    for folder in FOLDERS:
        paths = sorted(folder.glob("*.py"))
        if paths:
            return {path.stem: path for path in paths}
    return {}


def shipped_cluster() -> str:
    """Return the file of a cluster of machines that SSH reaches."""
    copied = FOLDERS[0] / "onprem.yaml"
    if copied.exists():
        return copied.read_text("utf-8")
    return (PACKAGE.parent / "clusters" / "onprem.yaml").read_text("utf-8")
