"""A cluster as its user's laptop sees it: a cluster file, SSH, and a tunnel to its jobs.

The head's job interface listens on loopback and asks for the cluster's token; both are
reached by SSH only. The token is read from the head when it is needed and kept nowhere.
"""

import contextlib
import os
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

from lmzoo.errors import UserError
from lmzoo.sweep.address import TOKEN
from lmzoo.sweep.runtime_env import ROOT

JOBS_PORT = 8265
"""Of the head's job interface and dashboard."""
CONNECT = 60.0
"""Seconds that a tunnel may take to come up."""
BULKY = ("checkpoint*.pt", ".lock", ".driver")
"""What of a store stays on the cluster; tables need none of it."""


class UnreachableError(ConnectionError):
    """The cluster does not answer: it is not up, or the network is down."""


class Cluster:
    """The cluster that a file describes."""

    def __init__(self, file: Path) -> None:
        """Read the file.

        Raises:
            UserError: there is no such file, or it describes no cluster.
        """
        self.file = file.resolve()
        try:
            self.description: dict[str, Any] = yaml.safe_load(self.file.read_text())
            self.name: str = self.description["cluster_name"]
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise UserError(f"{file} is no cluster file ({error}); cluster.yaml is one") from None

    def up(self) -> None:
        """Start the cluster; its progress is Ray's own.

        Raises:
            UserError: Ray could not start it.
        """
        code = subprocess.run([*_ray("up"), "-y", str(self.file)], cwd=ROOT, check=False).returncode
        if code:
            raise UserError(f"`ray up {self.file}` failed with code {code}; see what it said above")

    def ask(self, command: str) -> str:
        """The last line that a shell command prints on the head."""
        with _quiet():
            try:
                out = sdk.run_on_cluster(self._config, cmd=command, with_output=True)
            except Exception as error:  # Ray raises whatever its provider and SSH raise
                raise UnreachableError(f"cluster {self.name} does not answer: {error}") from None
        text = out.decode() if isinstance(out, bytes) else str(out)
        return (text.strip().splitlines() or [""])[-1].strip()

    @contextlib.contextmanager
    def jobs(self) -> Iterator[JobSubmissionClient]:
        """The cluster's job interface, through a tunnel that lasts as long as the context.

        Raises:
            UnreachableError: there is no way to it.
        """
        token = self.ask(f"cat {TOKEN}")
        with self._tunnel() as port:
            yield JobSubmissionClient(
                f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}
            )

    def fetch(self, source: str, target: Path) -> None:
        """Copy folders of runs here, without their weights.

        Raises:
            UnreachableError: they could not be copied.
        """
        target.mkdir(parents=True, exist_ok=True)
        config = {**self._config, "rsync_exclude": list(BULKY), "rsync_filter": []}
        with _quiet():
            try:
                sdk.rsync(config, source=source, target=f"{target}/", down=True)
            except Exception as error:
                raise UnreachableError(f"{source} on cluster {self.name}: {error}") from None

    @property
    def _config(self) -> dict[str, Any]:
        """The description, its local paths made independent of the current folder."""
        mounts = self.description.get("file_mounts", {})
        absolute = {there: str(ROOT / Path(here).expanduser()) for there, here in mounts.items()}
        return {**self.description, "file_mounts": absolute}

    @contextlib.contextmanager
    def _tunnel(self) -> Iterator[int]:
        port = _free_port()
        ssh = subprocess.Popen(
            [*_ray("dashboard"), str(self.file), "--port", str(port), "--remote-port",
             str(JOBS_PORT)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + CONNECT
            while not _answers(port):
                if ssh.poll() is not None or time.monotonic() >= deadline:
                    raise UnreachableError(
                        f"the job interface of cluster {self.name} does not answer"
                    )
                time.sleep(0.2)
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ssh.pid, signal.SIGTERM)
            ssh.wait()


def _ray(command: str) -> list[str]:
    return [sys.executable, "-m", "ray.scripts.scripts", command]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _answers(port: int) -> bool:
    """Whether there is a server behind the tunnel, not only the tunnel's own end."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.settimeout(5)
            link.sendall(b"GET /api/version HTTP/1.0\r\n\r\n")
            return link.recv(5) == b"HTTP/"
    except OSError:
        return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ray's launcher tells its steps on stdout; here they are of no interest."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield
