"""Runs a study on a cluster from a laptop: `python sweeps/NAME.py --submit CLUSTER.yaml`.

The cluster is started if it does not respond. The script becomes a Ray job, which gets the local
source code and runs on the head, also without a connection to the laptop. The laptop shows the
job's output through a tunnel, and opens a new tunnel when the connection is lost, for example while
the laptop sleeps. `--attach CLUSTER.yaml` follows the study's last job. When the job ends, its
records are copied to the laptop.
"""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from ray.job_submission import JobStatus, JobSubmissionClient

from lmzoo.base.errors import UserError
from lmzoo.base.own_parts import locate
from lmzoo.lab.cluster.remote import Cluster, UnreachableError
from lmzoo.lab.cluster.runtime_env import ROOT, folder_env, runtime_env
from lmzoo.lab.store.code_version import COMMIT, code_version

POLL_SECONDS = 2.0
"""Time between two queries of the job's status."""
RECONNECT_SECONDS = 900.0
"""How long to try to reach a lost cluster; the time that the laptop sleeps does not count."""
FETCH_FOLDER = Path("runs")


def run_on_cluster(
    study: str, command: Sequence[str], *, submit: Path | None, attach: Path | None
) -> int:
    """Submit a study's script to a cluster, or attach to its last job there, and follow the job.

    `command` is the command line of this process; `submit` or `attach` is a cluster config.

    Returns:
        The exit code of the job; 130 if following was interrupted.
    """
    if submit is not None:
        return _submit(study, submit, command)
    assert attach is not None
    return _attach(study, attach)


def _submit(study: str, file: Path, command: Sequence[str]) -> int:
    cluster = Cluster(file)
    entrypoint, source = _job_source(command)
    try:
        job = _start(cluster, study, entrypoint, source)
    except UnreachableError:
        _log(f"cluster {cluster.name} does not respond; starting it")
        cluster.up()
        job = _start(cluster, study, entrypoint, source)
    _log(f"job {job}: {entrypoint}")
    return _follow_and_fetch(cluster, file, study, job, entrypoint)


def _attach(study: str, file: Path) -> int:
    cluster = Cluster(file)
    prefix = f"{study}-"
    try:
        with cluster.job_client() as client:
            jobs = [j for j in client.list_jobs() if (j.submission_id or "").startswith(prefix)]
    except UnreachableError as error:
        raise UserError(f"{error}; start the cluster with `ray up {file}`") from None
    if not jobs:
        raise UserError(f"cluster {cluster.name} has no job of {study}; start one: --submit {file}")
    last = max(jobs, key=lambda j: j.start_time or 0)
    assert last.submission_id is not None
    return _follow_and_fetch(cluster, file, study, last.submission_id, last.entrypoint)


def without_cluster_options(command: Sequence[str]) -> list[str]:
    """Return the arguments of a command line without --submit and --attach."""
    kept: list[str] = []
    arguments = iter(command[1:])
    for argument in arguments:
        if argument in ("--submit", "--attach"):
            next(arguments, None)
        elif not argument.startswith(("--submit=", "--attach=")):
            kept.append(argument)
    return kept


def _job_source(command: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the command that the job runs on the head, and the source that it needs.

    A study of the repository gets the repository, another one the folder that it is in.

    Raises:
        UserError: The study is not a file, or its folder is too large.
    """
    script, options = Path(command[0]).resolve(), without_cluster_options(command)
    if not script.is_file():
        raise UserError(f"{command[0]} is not a file; --submit needs the file of a study")
    if script.is_relative_to(ROOT):
        return shlex.join(["python", str(script.relative_to(ROOT)), *options]), runtime_env()
    folder, _ = locate(script)
    run = ["python", "-m", "lmzoo", "sweep", str(script.relative_to(folder))]
    return shlex.join([*run, *options]), folder_env(folder)


def _start(cluster: Cluster, study: str, entrypoint: str, source: Mapping[str, Any]) -> str:
    with cluster.job_client() as client:
        return client.submit_job(
            entrypoint=entrypoint,
            submission_id=f"{study}-{datetime.now(UTC):%Y%m%d-%H%M%S}",
            # The copy of the clone that the head gets has no history.
            runtime_env={**source, "env_vars": {COMMIT: code_version()["commit"]}},
        )


def _follow_and_fetch(cluster: Cluster, file: Path, study: str, job: str, entrypoint: str) -> int:
    try:
        code = _follow(cluster, job)
    except KeyboardInterrupt:
        _log(
            f"job {job} continues; follow it with --attach {file}, "
            f"or stop it with: ray exec {file} 'ray job stop {job}'"
        )
        return 130
    _fetch(cluster, study, shlex.split(entrypoint))
    return code


def _follow(cluster: Cluster, job: str) -> int:
    """Show the job's output until the job ends; return its exit code."""
    shown, last_contact = 0, time.monotonic()
    while True:
        try:
            with cluster.job_client() as client:
                while True:
                    status = client.get_job_status(job)
                    log = client.get_job_logs(job)
                    sys.stdout.write(log[shown:])
                    sys.stdout.flush()
                    shown, last_contact = len(log), time.monotonic()
                    if status.is_terminal():
                        return _exit_code(client, job, status)
                    time.sleep(POLL_SECONDS)
        except OSError as error:  # UnreachableError, or a request through a broken tunnel
            if time.monotonic() - last_contact > RECONNECT_SECONDS:
                raise UserError(f"{error}; job {job} may run on: follow it with --attach") from None
            _log("connection lost; the job continues; reconnecting")
            time.sleep(POLL_SECONDS)


def _exit_code(client: JobSubmissionClient, job: str, status: JobStatus) -> int:
    info = client.get_job_info(job)
    if status != JobStatus.SUCCEEDED:
        _log(f"job {job} {status.value.lower()}: {info.message}")
    return info.driver_exit_code or (0 if status == JobStatus.SUCCEEDED else 1)


def _fetch(cluster: Cluster, study: str, arguments: Sequence[str]) -> None:
    """Copy the study's records to this machine, for `lmzoo rank` and the other tables."""
    stores = [value for option, value in pairwise(arguments) if option == "--storage"]
    stores += [a.partition("=")[2] for a in arguments if a.startswith("--storage=")]
    store = stores[-1] if stores else cluster.run("echo $LMZOO_STORAGE")
    if "://" in store:
        _log(f"the runs are in {store}: lmzoo rank {store}/{study}-CORPUS")
        return
    target = FETCH_FOLDER / cluster.name
    try:
        cluster.fetch(f"{store}/{study}-*", target)
    except UnreachableError as error:
        _log(f"could not fetch the records: {error}")
        return
    for folder in sorted(target.glob(f"{study}-*")):
        _log(f"fetched: lmzoo rank {folder}")


def _log(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
