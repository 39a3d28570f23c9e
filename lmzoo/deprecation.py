"""Old names that are still accepted (docs/reference/public_api.md).

A name is accepted for at least two minor versions after its replacement. It works as before and
warns once. The command line prints the warning as one line on stderr.
"""

import warnings


class DeprecatedName(FutureWarning):
    """An old name was used. The message is one line: the old name, the version, the new name."""


def deprecated(old: str, new: str, *, removed_in: str) -> None:
    """Warn the caller of the calling function that `old` is accepted until `removed_in`."""
    message = f"{old} is deprecated and will be removed in lmzoo {removed_in}; use {new}"
    warnings.warn(message, DeprecatedName, stacklevel=3)
