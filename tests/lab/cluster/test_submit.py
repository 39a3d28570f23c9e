"""Submitting a study to a cluster, attaching to its job and following it."""

import contextlib
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cluster import runtime_env, submit
from lmzoo.lab.cluster.remote import Cluster, UnreachableError


class FakeCluster:
    """A cluster with one job, whose log grows with each query and whose tunnel breaks."""

    def __init__(self, broken_queries: set[int]) -> None:
        self.queries, self.broken_queries, self.tunnels = 0, broken_queries, 0

    @contextlib.contextmanager
    def job_client(self):
        self.tunnels += 1
        yield self

    def get_job_status(self, job):
        self.queries += 1
        if self.queries in self.broken_queries:
            raise ConnectionResetError("asleep")
        return submit.JobStatus.SUCCEEDED if self.queries > 5 else submit.JobStatus.RUNNING

    def get_job_logs(self, job):
        return "".join(f"line {i}\n" for i in range(self.queries))

    def get_job_info(self, job):
        return SimpleNamespace(driver_exit_code=None, message="")


def test_following_survives_a_broken_tunnel_and_shows_each_line_once(monkeypatch, capsys):
    monkeypatch.setattr(submit, "POLL_SECONDS", 0)
    cluster = FakeCluster(broken_queries={2, 4})
    assert submit._follow(cast(Cluster, cluster), "job") == 0
    assert cluster.tunnels == 3
    out, err = capsys.readouterr()
    assert out == "".join(f"line {i}\n" for i in range(6))
    assert err.count("connection lost") == 2


def test_following_gives_up_a_cluster_that_stays_unreachable(monkeypatch):
    monkeypatch.setattr(submit, "POLL_SECONDS", 0)
    monkeypatch.setattr("time.monotonic", itertools.count(0, 300).__next__)
    with pytest.raises(UserError, match="follow it with --attach"):
        submit._follow(cast(Cluster, FakeCluster(broken_queries=set(range(1000)))), "job")


def test_attach_follows_the_last_job_of_this_study(monkeypatch):
    jobs = [
        SimpleNamespace(submission_id="toy-1", start_time=1, entrypoint="python a.py"),
        SimpleNamespace(submission_id="toy-2", start_time=2, entrypoint="python b.py"),
        SimpleNamespace(submission_id="toyota-3", start_time=3, entrypoint="python c.py"),
    ]

    @contextlib.contextmanager
    def job_client():
        yield SimpleNamespace(list_jobs=lambda: jobs)

    fake = SimpleNamespace(job_client=job_client, name="c")
    monkeypatch.setattr(submit, "Cluster", lambda _: fake)
    monkeypatch.setattr(submit, "_follow_and_fetch", lambda *job: job[3:])
    assert submit._attach("toy", Path("c.yaml")) == ("toy-2", "python b.py")
    with pytest.raises(UserError, match="has no job of other"):
        submit._attach("other", Path("c.yaml"))


def test_an_unreachable_cluster_is_started_once(monkeypatch):
    started = []

    @contextlib.contextmanager
    def job_client():
        if not started:
            raise UnreachableError("down")
        yield SimpleNamespace(submit_job=lambda **job: job["entrypoint"])

    fake = SimpleNamespace(job_client=job_client, name="c", up=lambda: started.append(1))
    monkeypatch.setattr(submit, "Cluster", lambda _: fake)
    monkeypatch.setattr(submit, "_follow_and_fetch", lambda *job: job[3])
    command = [str(submit.ROOT / "sweeps/cath.py"), "--submit", "c.yaml", "--seeds", "3"]
    job = submit._submit("cath", Path("c.yaml"), command)
    assert (job, started) == ("python sweeps/cath.py --seeds 3", [1])


def test_the_job_does_not_get_the_options_that_name_a_cluster():
    cluster_options = ["--submit", "c.yaml", "--attach=d.yaml"]
    command = ["x.py", "--seeds", "3", *cluster_options, "--json", "--set=a=1"]
    assert submit.without_cluster_options(command) == ["--seeds", "3", "--json", "--set=a=1"]


def test_a_study_outside_the_repository_is_sent_with_its_folder_and_the_package(tmp_path):
    folder = tmp_path / "mine"
    (folder / "runs").mkdir(parents=True)
    (folder / "carry.py").write_text("STUDY = None")
    command = [str(folder / "carry.py"), "--submit", "c.yaml", "--seeds", "3"]
    entrypoint, source = submit._job_source(command)
    assert entrypoint == "python -m lmzoo sweep carry.py --seeds 3"
    assert source["working_dir"] == str(folder)
    assert source["py_modules"] == [str(submit.ROOT / "lmzoo")]
    assert "runs" in source["excludes"]


def test_a_folder_that_is_too_large_to_send_is_refused(tmp_path, monkeypatch):
    (tmp_path / "carry.py").write_text("x" * 1001)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/big").write_text("x" * 10_000)
    monkeypatch.setattr(runtime_env, "MAX_BYTES", 1001)
    submit._job_source([str(tmp_path / "carry.py")])
    monkeypatch.setattr(runtime_env, "MAX_BYTES", 1000)
    with pytest.raises(UserError, match="too much to send to a cluster; move the study"):
        submit._job_source([str(tmp_path / "carry.py")])


def test_a_study_that_is_not_a_file_is_refused():
    with pytest.raises(UserError, match=r"my_package.study is not a file"):
        submit._job_source(["my_package.study"])


@pytest.mark.parametrize("text", [None, "[1, 2]", "a: [", "provider: {}"])
def test_a_file_that_is_not_a_cluster_config_is_refused(text, tmp_path):
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match="is not a cluster config"):
        Cluster(path)
