"""The studies of the package: in a clone in `sweeps/`, in a wheel inside the package."""

from pathlib import Path

PACKAGE = Path(__file__).parent
FOLDERS = (PACKAGE / "shipped_studies", PACKAGE.parent / "sweeps")


def shipped_studies() -> dict[str, Path]:
    """Return name -> file of the studies that this installation has."""
    paths = next((found for folder in FOLDERS if (found := sorted(folder.glob("*.py")))), [])
    return {path.stem: path for path in paths}
