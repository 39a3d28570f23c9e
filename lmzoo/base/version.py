"""The version of the package, which `pyproject.toml` reads, and the software of a node."""

import hashlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from lmzoo.base.errors import UserError

__version__ = "0.4.0"


def software() -> dict[str, str]:
    """Return what must be equal on all nodes of a sweep: the package's source, and versions."""
    source = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        # The name, too: a file that moved is another source.
        source.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    found = {"lmzoo": f"{__version__} ({source.hexdigest()[:8]})"}
    for name in ("torch", "numpy", "ray"):
        try:
            found[name] = metadata.version(name).partition("+")[0]  # a head may have no GPU
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def check_software(expected: Mapping[str, str]):
    """Raise a `UserError` if a version differs from that of the node that plans the sweep."""
    found = software()
    others = [
        f"{name} {found[name]} here, {version} there"
        for name, version in expected.items()
        if found[name] != version
    ]
    if others:
        text = "; ".join(others)
        raise UserError(f"its software is not that of the driver: {text}; install the same")
