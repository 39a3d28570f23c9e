"""A real SLURM on one machine: a controller and two nodes with pretended GPUs.

    with Slurm(folder) as slurm:
        job = slurm.submit("clusters/slurm.sh", "sweeps/gru_ablation.py")
        slurm("scontrol", "requeue", job)
        slurm.wait(job)

A job in the partition `urgent` preempts those in `normal`, which are then requeued. All daemons
run in the foreground as children of this process, with their own configuration, key and ports.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from drills.hosts import ROOT
from tests.lab.sweep.processes import wait_until

PACKAGES = ("slurm-wlm", "munge")
DAEMONS = ("munged", "slurmctld", "slurmd")
CONFIG = """\
ClusterName=lmzoo
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=17000
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
ReturnToService=2
KillWait=30
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 Gres=gpu:2
PartitionName=normal Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=n[1-2] MaxTime=INFINITE State=UP PriorityTier=9
"""


def install() -> str:
    """Install SLURM's Debian packages if they are missing; return why that is impossible, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    if all(map(shutil.which, DAEMONS)):
        return ""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", *PACKAGES]):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return f"needs {' and '.join(PACKAGES)}"
        if done.returncode:
            return f"{' '.join(command)} failed: {done.stderr[-200:]}"
    return ""


class Slurm:
    """SLURM in `folder`; call it to run one of its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.daemons = folder, list[subprocess.Popen[bytes]]()
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("OMP_NUM_THREADS", "RAY_ADDRESS"):
            self.environment.pop(name, None)

    def __enter__(self) -> Self:
        """Start the daemons and wait until both nodes are idle."""
        host = socket.gethostname().partition(".")[0]
        self.folder.chmod(0o755)  # munge refuses a folder that its clients cannot enter
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(CONFIG.format(host=host, folder=self.folder))
        for i in range(2):
            (self.folder / f"gpu{i}").touch()
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{name}" for option, name in files.items()]
        try:
            self._start("munged", "--foreground", f"--key-file={key}", *options)
            wait_until((self.folder / "munge.socket").exists, 20)
            self._start("slurmctld", "-D")
            for node in ("n1", "n2"):
                self._start("slurmd", "-D", "-N", node)
            self.wait_for_nodes(60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all jobs, then the daemons."""
        if len(self.daemons) > 1:
            subprocess.run(["scancel", "--state=PENDING"], env=self.environment, check=False)
            subprocess.run(["scancel", "--user=root"], env=self.environment, check=False)
            deadline = time.monotonic() + 60
            while self("squeue", "-h") and time.monotonic() < deadline:
                time.sleep(0.5)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(30)

    def __call__(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, *command: str) -> str:
        """Submit a script with these options and arguments; return the job's id."""
        return self("sbatch", "--parsable", f"--output={self.folder}/%j.out", *command)

    def state(self, job: str) -> str:
        """Return the state of a job: PENDING, RUNNING, COMPLETED, FAILED, ..."""
        return self.show(job)["JobState"]

    def show(self, job: str) -> Mapping[str, str]:
        """Return what `scontrol` shows of a job."""
        words = self("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for_nodes(self, seconds: float) -> None:
        """Wait until both nodes are idle."""
        idle = ("sinfo", "-hN", "--partition=normal", "--states=idle", "--format=%N")
        wait_until(lambda: self(*idle).split() == ["n1", "n2"], seconds)

    def wait_for_restart(self, job: str, restarts: int) -> None:
        """Wait until a job was requeued this often; start it without SLURM's delay of minutes."""
        wait_until(lambda: self.show(job)["Restarts"] == str(restarts), 120)
        wait_until(lambda: self.state(job) == "PENDING", 120)
        self.wait_for_nodes(120)
        time.sleep(2)  # SLURM refuses a job that starts in the second in which its last one ended
        self("scontrol", "update", f"JobId={job}", "StartTime=now")

    def output(self, job: str) -> str:
        """Return the output of a job."""
        path = self.folder / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def _start(self, *command: str) -> None:
        log = (self.folder / f"{command[0]}.{len(self.daemons)}.log").open("wb")
        with log:
            self.daemons.append(
                subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
            )
