"""The version of the package, which `pyproject.toml` reads, and old names that are still accepted.

A name is accepted for at least two minor versions after its replacement. It works as before and
warns once (docs/reference/public_api.md). The command line prints one line on stderr.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "0.3.0"


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
