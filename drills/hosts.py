"""Hosts made of namespaces: each has its own address, processes, home, /tmp, /dev/shm and sshd.

    with Network(folder) as network:
        head = network.host("head", 10)          # 10.77.0.10
        laptop = network.host("laptop", 5, checkout=True)
        laptop.run("ssh root@10.77.0.10 hostname")
        head.kill()                              # kill all its processes
        with head.disconnect(): ...              # without network

The hosts share the system folders of the machine, the interpreter, and /mnt, which stands for the
shared file system of a cluster. Each needs its own process namespace, because `ray stop` ends
every Ray process that it can see.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BRIDGE = "lmzoo-br"
GATEWAY = "10.77.0.1"
LOCK = Path("/var/tmp/lmzoo-drill.lock")
"""Locked by a running drill, because the names of the hosts exist once per machine."""


def sh(*command: str | Path) -> str:
    """Run a command on this machine and return its output; a failure shows the output."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def remove_leftovers() -> None:
    """Remove the hosts, processes and the bridge of an earlier drill that was killed."""
    for name in [line.split()[0] for line in sh("ip", "netns", "list").splitlines()]:
        if name.startswith("lmzoo-"):
            for process in sh("ip", "netns", "pids", name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            sh("ip", "netns", "del", name)
    for link in Path("/sys/class/net").glob("lmzoo-*"):
        # Deleting one end of a cable also deletes the other, sometimes before this loop does.
        subprocess.run(["ip", "link", "del", link.name], check=False, capture_output=True)


class Host:
    """One host; created by `Network.host`."""

    def __init__(self, folder: Path, shared: Path, name: str, last: int, *, checkout: bool) -> None:
        self.folder, self.name, self.ip = folder, name, f"10.77.0.{last}"
        self.home = folder / "root"
        self.namespace, self.cable = f"lmzoo-{name}", f"lmzoo-v{last}"
        self._create_files(shared, checkout=checkout)
        self._connect()
        self._boot()

    def command(self, script: str) -> list[str]:
        """Return the command that runs a shell script on this host in a login shell of root."""
        enter = ["nsenter", "--all", "--target", str(self.init), "--wd=/root"]
        env = ["env", "-i", "HOME=/root", "USER=root", "TERM=dumb", f"PATH={os.environ['PATH']}"]
        return [*enter, *env, "bash", "--login", "-i", "-c", script]

    def run(self, script: str, *, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a shell script on this host and wait for it."""
        return subprocess.run(
            self.command(script), capture_output=True, text=True, timeout=seconds, check=False
        )

    def start(self, script: str) -> subprocess.Popen[str]:
        """Start a shell script on this host; both outputs go to `stdout` of the process."""
        return subprocess.Popen(
            self.command(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def kill(self) -> None:
        """Kill all processes, as a power cut would: killing the first one kills the others."""
        if self._shell.poll() is None:
            os.kill(self.init, signal.SIGKILL)
            self._shell.wait(timeout=30)

    def reboot(self) -> None:
        """Start the host again after `kill`; its files are kept."""
        self._boot()

    @contextlib.contextmanager
    def disconnect(self) -> Iterator[None]:
        """Disconnect the network inside the context: packets are lost, not refused."""
        sh("ip", "link", "set", self.cable, "down")
        try:
            yield
        finally:
            sh("ip", "link", "set", self.cable, "up")

    def remove(self) -> None:
        """Kill its processes and delete its network devices."""
        self.kill()
        sh("ip", "link", "del", self.cable)
        sh("ip", "netns", "del", self.namespace)

    def _create_files(self, shared: Path, *, checkout: bool) -> None:
        home = self.home
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        for name in (".bashrc", ".profile"):
            shutil.copy(Path("/etc/skel") / name, home / name)
        with (home / ".bashrc").open("a") as bashrc:  # on a busy machine, workers would stand still
            bashrc.write("export RAY_worker_niceness=0\n")
        key = self.folder.parent / "key"
        shutil.copy(key.with_suffix(".pub"), home / ".ssh/authorized_keys")
        shutil.copy(key, home / ".ssh/id_ed25519")
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "hostkey")
        (self.folder / "sshd_config").write_text(
            f"ListenAddress {self.ip}\nHostKey {self.folder}/hostkey\nPidFile none\n"
            "AuthorizedKeysFile .ssh/authorized_keys\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nUsePAM no\nStrictModes no\n"
        )
        mounts = ["mount --make-rprivate /", f"mount --bind {shared} /mnt"]
        keep = [Path(sys.base_prefix)] if checkout else [Path(sys.base_prefix), ROOT / ".venv"]
        for number, path in enumerate(keep):
            (self.folder / f"keep{number}").mkdir()
            mounts.append(f"mount --bind {path} {self.folder}/keep{number}")
        if not checkout:  # the host has only the files that are sent to it
            mounts += [f"mount -t tmpfs tmpfs {ROOT}", f"mkdir {ROOT}/.venv"]
            mounts.append(f"mount --bind {self.folder}/keep1 {ROOT}/.venv")
        mounts.append(f"mount --bind {home} /root")
        mounts.append(f"mkdir -p {keep[0]} && mount --bind {self.folder}/keep0 {keep[0]}")
        (self.folder / "tmp").mkdir(mode=0o1777)
        mounts.append("mount -t tmpfs -o size=1500m tmpfs /dev/shm")
        mounts.append(f"mkdir -p /run/sshd && mount --bind {self.folder}/tmp /tmp")
        script = ["set -e", *mounts, f"hostname {self.name}"]
        script.append(f"exec /usr/sbin/sshd -D -e -f {self.folder}/sshd_config")
        (self.folder / "init.sh").write_text("\n".join(script) + "\n")

    def _connect(self) -> None:
        name, cable = self.namespace, self.cable
        sh("ip", "netns", "add", name)
        sh("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        sh("ip", "link", "set", cable, "master", BRIDGE, "up")
        sh("ip", "-n", name, "addr", "add", f"{self.ip}/24", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "-n", name, "route", "add", "default", "via", GATEWAY)

    def _boot(self) -> None:
        unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]
        with (self.folder / "log").open("w") as log:
            self._shell = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *unshare, "--kill-child",
                 "bash", str(self.folder / "init.sh")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 20
        while "listening" not in (self.folder / "log").read_text():
            assert self._shell.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, f"{self.name} does not start"
            time.sleep(0.1)
        children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text()
        self.init = int(children.split()[0])


class Network:
    """A bridge, its hosts, and the folder that they share as /mnt."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shared = folder, folder / "shared"
        self.hosts: list[Host] = []

    def __enter__(self) -> "Network":
        self._lock = LOCK.open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another drill is running on this machine ({LOCK})") from None
        remove_leftovers()
        self.shared.mkdir(parents=True)
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "key")
        sh("ip", "link", "add", BRIDGE, "type", "bridge")
        sh("ip", "addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        sh("ip", "link", "set", BRIDGE, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.remove()
        sh("ip", "link", "del", BRIDGE)
        self._lock.close()

    def host(self, name: str, last: int, *, checkout: bool = False) -> Host:
        """Add a host; with `checkout` it sees this repository, like the laptop of a developer."""
        host = Host(self.folder / name, self.shared, name, last, checkout=checkout)
        self.hosts.append(host)
        return host
