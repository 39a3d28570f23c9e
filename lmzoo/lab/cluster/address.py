"""Decides which Ray cluster a sweep joins; Ray reads the environment when it is imported.

1. The cluster in RAY_ADDRESS, which Ray sets for submitted jobs. `local` means none.
2. On the head of a cluster that `ray up` started: that cluster. `ray up` leaves its config in the
   home folder of the head, and `ray start` leaves the address in a file. The address is ignored if
   another account owns the file: the owner of a cluster can run code as any user who joins it.
3. Otherwise none: the sweep starts Ray for itself, on loopback, with a secret random token.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

CLUSTER_CONFIG = "~/ray_bootstrap_config.yaml"
"""The config of a cluster, which `ray up` writes on its head only."""
TOKEN_FILE = "~/.ray/auth_token"
QUIET = {"RAY_enable_output_error_log_if_still_retry": "0"}
"""Else the core of Ray prints each call that it repeats; the coordinator says what is lost."""


def ray_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables to set before Ray is imported, RAY_ADDRESS only if it joins a cluster."""
    address = environ.get("RAY_ADDRESS") or _address_on_head(environ)
    if address in ("", "local"):
        return {
            **QUIET,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes Ray listen on loopback only
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # packs the working folder, its stores included
        }
    # Try once to connect: a head that refuses this process, which has no token, takes 40 s.
    variables = {**QUIET, "RAY_ADDRESS": address, "RAY_gcs_server_port_wait_time_s": "1"}
    if Path(TOKEN_FILE).expanduser().exists():
        variables["RAY_AUTH_MODE"] = environ.get("RAY_AUTH_MODE", "token")
    return variables


def _address_on_head(environ: Mapping[str, str]) -> str:
    """Return the address of the cluster whose head this machine is; "" if it is not a head."""
    current = Path(ray_folder(environ)) / "ray" / "ray_current_cluster"
    if not Path(os.path.expanduser(CLUSTER_CONFIG)).exists() or not current.exists():  # noqa: PTH111
        return ""
    if current.stat().st_uid != os.getuid():
        return ""
    return current.read_text().strip()


def ray_folder(environ: Mapping[str, str]) -> str:
    """Return the folder in which Ray has its sessions."""
    return environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or "/tmp"
