"""The version of the package, which `pyproject.toml` reads, and old names that are still accepted.

A name is accepted for at least two minor versions after its replacement. It works as before and
warns once (docs/reference/public_api.md). The command line prints one line on stderr.
"""

import hashlib
import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from lmzoo.base.errors import UserError

__version__ = "0.3.0"


def software() -> dict[str, str]:
    """Return what must be equal on all nodes of a sweep: the package's source, and versions."""
    source, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        source.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    found = {"lmzoo": f"{__version__} ({source.hexdigest()[:8]})"}
    for name in ("torch", "numpy", "ray"):
        try:
            found[name] = metadata.version(name).partition("+")[0]  # a head may have no GPU
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def check_software(expected: Mapping[str, str]) -> None:
    """Raise a `UserError` if a version differs from that of the node that plans the sweep."""
    found = software()
    if others := [f"{k} {found[k]} here, {v} there" for k, v in expected.items() if found[k] != v]:
        text = "; ".join(others)
        raise UserError(f"its software is not that of the driver: {text}; install the same")


class DeprecatedName(FutureWarning):
    """An old name was used. The message is one line: the old name, the version, the new name."""


def deprecated(old: str, new: str, *, removed_in: str) -> None:
    """Warn the caller of the calling function that `old` is accepted until `removed_in`."""
    message = f"{old} is deprecated and will be removed in lmzoo {removed_in}; use {new}"
    warnings.warn(message, DeprecatedName, stacklevel=3)


MOVED = {
    "lmzoo.config": "lmzoo.base.config",
    "lmzoo.errors": "lmzoo.base.errors",
    "lmzoo.search_space": "lmzoo.base.search_space",
    "lmzoo.sweep": "lmzoo",
}
"""Public modules by their names before 0.3."""


class OldNames(MetaPathFinder, Loader):
    """Imports a module that has moved, and warns."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, MOVED[module.__name__]
        warnings.warn(
            f"{old} is deprecated and will be removed in lmzoo 0.4; use {new}",
            DeprecatedName,
            stacklevel=2,
        )
        sys.modules[old] = importlib.import_module(new)
