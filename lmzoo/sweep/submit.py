"""`python sweeps/NAME.py --submit CLUSTER.yaml`: a sweep on a cluster, from the laptop.

The cluster is started if it does not answer. The script becomes a Ray job: its source is
sent along, so what runs is what stands here, and it runs on the head whether or not
anyone looks on. Following reads the job's console through a tunnel and opens another
tunnel when that one breaks, as it does when a laptop sleeps; `--attach CLUSTER.yaml`
comes back to the study's last job. At the end the tables' records are fetched.
"""

import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from ray.job_submission import JobStatus, JobSubmissionClient

from lmzoo.errors import UserError
from lmzoo.sweep.remote import Cluster, UnreachableError
from lmzoo.sweep.runtime_env import ROOT, runtime_env

POLL = 2.0
"""Seconds between two looks at the job."""
PATIENCE = 900.0
"""Seconds of trying to reach a lost cluster (asleep ones not counted) before giving up."""
FETCHED = Path("runs")


def elsewhere(
    study: str, command: Sequence[str], *, submit: Path | None, attach: Path | None
) -> int:
    """Run `command`, a study's script with its options, on a cluster, or come back to it.

    Returns:
        The exit code of the script there.
    """
    if submit is not None:
        return _submit(study, submit, command)
    assert attach is not None
    return _attach(study, attach)


def _submit(study: str, file: Path, command: Sequence[str]) -> int:
    cluster = Cluster(file)
    entrypoint = _entrypoint(command)
    try:
        job = _start(cluster, study, entrypoint)
    except UnreachableError:
        _say(f"cluster {cluster.name} does not answer; starting it")
        cluster.up()
        job = _start(cluster, study, entrypoint)
    _say(f"job {job}: {entrypoint}")
    return _see_through(cluster, file, study, job, entrypoint)


def _attach(study: str, file: Path) -> int:
    cluster = Cluster(file)
    try:
        with cluster.jobs() as client:
            known = [
                j for j in client.list_jobs() if (j.submission_id or "").startswith(f"{study}-")
            ]
    except UnreachableError as error:
        raise UserError(f"{error}; is it up? `ray up {file}`") from None
    if not known:
        raise UserError(f"cluster {cluster.name} has no job of {study}; --submit {file} starts one")
    last = max(known, key=lambda j: j.start_time or 0)
    assert last.submission_id is not None
    return _see_through(cluster, file, study, last.submission_id, last.entrypoint)


def options(command: Sequence[str]) -> list[str]:
    """The options of a command line, without those that say where it runs."""
    kept: list[str] = []
    words = iter(command[1:])
    for word in words:
        if word in ("--submit", "--attach"):
            next(words, None)
        elif not word.startswith(("--submit=", "--attach=")):
            kept.append(word)
    return kept


def _entrypoint(command: Sequence[str]) -> str:
    script = Path(command[0]).resolve()
    if not script.is_relative_to(ROOT):
        raise UserError(
            f"{script} is outside {ROOT}, which is what the cluster gets; move it there"
        )
    return shlex.join(["python", str(script.relative_to(ROOT)), *options(command)])


def _start(cluster: Cluster, study: str, entrypoint: str) -> str:
    with cluster.jobs() as client:
        return client.submit_job(
            entrypoint=entrypoint,
            submission_id=f"{study}-{datetime.now(UTC):%Y%m%d-%H%M%S}",
            runtime_env=runtime_env(),
        )


def _see_through(cluster: Cluster, file: Path, study: str, job: str, entrypoint: str) -> int:
    try:
        code = _follow(cluster, job)
    except KeyboardInterrupt:
        _say(
            f"job {job} goes on; come back with --attach {file}, "
            f"or end it with: ray exec {file} 'ray job stop {job}'"
        )
        return 130
    _fetch(cluster, study, shlex.split(entrypoint))
    return code


def _follow(cluster: Cluster, job: str) -> int:
    """Show the job's console until it ends; its exit code."""
    shown, heard = 0, time.monotonic()
    while True:
        try:
            with cluster.jobs() as client:
                while True:
                    status = client.get_job_status(job)
                    shown = _show(client.get_job_logs(job), shown)
                    heard = time.monotonic()
                    if status.is_terminal():
                        return _exit_code(client, job, status)
                    time.sleep(POLL)
        except OSError as error:  # also what a broken tunnel makes of a request
            if time.monotonic() - heard > PATIENCE:
                raise UserError(
                    f"{error}; job {job} may go on: --attach comes back to it"
                ) from None
            _say("the connection is lost; the job goes on, trying to come back to it")
            time.sleep(POLL)


def _show(log: str, shown: int) -> int:
    sys.stdout.write(log[shown:])
    sys.stdout.flush()
    return len(log)


def _exit_code(client: JobSubmissionClient, job: str, status: JobStatus) -> int:
    info = client.get_job_info(job)
    if status != JobStatus.SUCCEEDED:
        _say(f"job {job} {status.value.lower()}: {info.message}")
    return info.driver_exit_code or (0 if status == JobStatus.SUCCEEDED else 1)


def _fetch(cluster: Cluster, study: str, given: Sequence[str]) -> None:
    """Copy the study's records here, for `analysis/` to read."""
    stores = [b for a, b in pairwise(given) if a == "--storage"]
    stores += [word.partition("=")[2] for word in given if word.startswith("--storage=")]
    store = stores[-1] if stores else cluster.ask("echo $LMZOO_STORAGE")
    if "://" in store:
        _say(f"the runs are in {store}: python lmzoo/cli/rank.py {store}/{study}-CORPUS")
        return
    target = FETCHED / cluster.name
    try:
        cluster.fetch(f"{store}/{study}-*", target)
    except UnreachableError as error:
        _say(f"nothing fetched: {error}")
        return
    for folder in sorted(target.glob(f"{study}-*")):
        _say(f"fetched: python lmzoo/cli/rank.py {folder}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
