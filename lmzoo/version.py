"""The version of the package, which `pyproject.toml` reads, and old names that are still accepted.

A name is accepted for at least two minor versions after its replacement. It works as before and
warns once (docs/reference/public_api.md). The command line prints one line on stderr.
"""

import warnings

__version__ = "0.2.0"


class DeprecatedName(FutureWarning):
    """An old name was used. The message is one line: the old name, the version, the new name."""


def deprecated(old: str, new: str, *, removed_in: str) -> None:
    """Warn the caller of the calling function that `old` is accepted until `removed_in`."""
    message = f"{old} is deprecated and will be removed in lmzoo {removed_in}; use {new}"
    warnings.warn(message, DeprecatedName, stacklevel=3)
