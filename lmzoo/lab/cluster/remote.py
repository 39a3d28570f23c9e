"""A Ray cluster as seen from the user's laptop: its config file, SSH, and a tunnel to its jobs.

The job server on the head listens on loopback and requires the cluster's token. Both are reached by
SSH only. The token is read from the head when it is needed, and is not stored.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ray.autoscaler import sdk
from ray.job_submission import JobSubmissionClient

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.address import TOKEN_FILE
from lmzoo.lab.cluster.runtime_env import ROOT

JOBS_PORT = 8265
"""Port of the head's job server and dashboard."""
TUNNEL_SECONDS = 60.0
"""How long a tunnel may take to open."""
NOT_FETCHED = ("checkpoint*.pt", ".lock", ".driver", ".worker-*")
"""Files of a store that are not copied to the laptop; tables do not need them."""


class UnreachableError(ConnectionError):
    """The cluster does not respond: it is not running, or the network is down."""


class Cluster:
    """The cluster of a config file; methods raise `UnreachableError` if it does not respond."""

    def __init__(self, file: Path) -> None:
        self.file = file.resolve()
        try:
            self.config: dict[str, Any] = yaml.safe_load(self.file.read_text())
            self.name: str = self.config["cluster_name"]
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise UserError(f"{file} is not a cluster config ({error}); see cluster.yaml") from None

    def up(self) -> None:
        """Start the cluster; Ray prints the progress."""
        code = subprocess.run(
            [*ray_command("up"), "-y", str(self.file)], cwd=ROOT, check=False
        ).returncode
        if code:
            raise UserError(f"`ray up {self.file}` failed with exit code {code}; see its output")

    def run(self, command: str) -> str:
        """Run a shell command on the head and return the last line of its output."""
        with _discard_output():
            try:
                output = sdk.run_on_cluster(self._sdk_config, cmd=command, with_output=True)
            except Exception as error:  # Ray raises the errors of its provider and of SSH
                raise UnreachableError(f"cluster {self.name} does not respond: {error}") from None
        text = output.decode() if isinstance(output, bytes) else str(output)
        return (text.strip().splitlines() or [""])[-1].strip()

    @contextlib.contextmanager
    def job_client(self) -> Iterator[JobSubmissionClient]:
        """Open a tunnel to the job server, and close it at the end of the context."""
        token = self.run(f"cat {TOKEN_FILE}")
        with self._tunnel() as port:
            yield JobSubmissionClient(
                f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}
            )

    def fetch(self, source: str, target: Path) -> None:
        """Copy study stores to this machine, without checkpoints."""
        target.mkdir(parents=True, exist_ok=True)
        config = {**self._sdk_config, "rsync_exclude": list(NOT_FETCHED), "rsync_filter": []}
        with _discard_output():
            try:
                sdk.rsync(config, source=source, target=f"{target}/", down=True)
            except Exception as error:
                raise UnreachableError(f"{source} on cluster {self.name}: {error}") from None

    @property
    def _sdk_config(self) -> dict[str, Any]:
        """The config with absolute local paths, which do not depend on the current folder."""
        mounts = self.config.get("file_mounts", {})
        absolute = {
            remote: str(ROOT / Path(local).expanduser()) for remote, local in mounts.items()
        }
        return {**self.config, "file_mounts": absolute}

    @contextlib.contextmanager
    def _tunnel(self) -> Iterator[int]:
        """Yield the local port of an SSH tunnel to the job server."""
        port = _free_port()
        ssh = subprocess.Popen(
            [*ray_command("dashboard"), str(self.file), "--port", str(port), "--remote-port",
             str(JOBS_PORT)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + TUNNEL_SECONDS
            while not _responds(port):
                if ssh.poll() is not None or time.monotonic() >= deadline:
                    raise UnreachableError(
                        f"the job server of cluster {self.name} does not respond"
                    )
                time.sleep(0.2)
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ssh.pid, signal.SIGTERM)
            ssh.wait()


def ray_command(command: str) -> list[str]:
    """Return a command of Ray's executable, preferably the one in the folder of this Python."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    executable = shutil.which("ray", path=folders)
    if executable is None:
        raise UserError("there is no `ray` on the PATH; run: pip install 'ray[default]'")
    return [executable, command]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _responds(port: int) -> bool:
    """Return True if the job server responds; the tunnel's own end accepts connections earlier."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.settimeout(5)
            link.sendall(b"GET /api/version HTTP/1.0\r\n\r\n")
            return link.recv(5) == b"HTTP/"
    except OSError:
        return False


@contextlib.contextmanager
def _discard_output() -> Iterator[None]:
    """Discard the progress that Ray's launcher prints."""
    with (
        Path(os.devnull).open("w") as devnull,
        contextlib.redirect_stdout(devnull),
        contextlib.redirect_stderr(devnull),
    ):
        yield
