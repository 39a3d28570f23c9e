"""Which Ray cluster a sweep joins, decided before Ray is imported.

1. The one that RAY_ADDRESS names, which Ray sets for a submitted job; `local` names none.
2. On the head of a cluster started by `ray up`: that cluster. Ray's launcher leaves its
   description in the head's home folder, `ray start` leaves the address in a file that
   must be ours. An address that another account left there is not followed: whoever
   runs a cluster can run code as anybody who joins it.
3. Otherwise none: the sweep starts Ray for itself, on loopback, behind a token that
   nobody else knows.

Ray reads its environment when it is imported, so this comes first.
"""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

DESCRIPTION = "~/ray_bootstrap_config.yaml"
"""Where `ray up` puts the cluster's description on the head, and only there."""
TOKEN = "~/.ray/auth_token"
TOO_LATE = "ray" in sys.modules
"""Whether Ray was imported before this, and knows nothing of what `environment` will say."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What to set before Ray is imported; RAY_ADDRESS is in it only if there is one to join."""
    address = environ.get("RAY_ADDRESS") or _of_this_head(environ)
    if address in ("", "local"):
        # The odd name is Ray's switch for listening on loopback only.
        return {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
    joined = {"RAY_ADDRESS": address}
    if Path(TOKEN).expanduser().exists():
        joined["RAY_AUTH_MODE"] = environ.get("RAY_AUTH_MODE", "token")
    return joined


def _of_this_head(environ: Mapping[str, str]) -> str:
    temporary = environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or "/tmp"
    current = Path(temporary) / "ray" / "ray_current_cluster"
    if not Path(DESCRIPTION).expanduser().exists() or not current.exists():
        return ""
    return current.read_text().strip() if current.stat().st_uid == os.getuid() else ""
