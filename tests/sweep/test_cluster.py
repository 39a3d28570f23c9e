"""What a sweep refuses to wait for, and following a job."""

import contextlib
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from lmzoo.errors import UserError
from lmzoo.sweep import cluster as clusters
from lmzoo.sweep import submit
from lmzoo.sweep.cluster import Resources, max_workers, refuse_impossible
from lmzoo.sweep.remote import Cluster, UnreachableError

GPU_TYPES = {
    "provider": {"type": "aws"},
    "max_workers": 4,
    "available_node_types": {
        "head": {"resources": {"CPU": 3}, "max_workers": 0},
        "gpu": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 2},
    },
}
MACHINES = {"provider": {"type": "local", "worker_ips": ["10.0.0.2", "10.0.0.3"]}}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path


@pytest.fixture
def joined(home, monkeypatch):
    """A cluster of these live nodes and this description."""

    def join(nodes: list[dict[str, float]], description: dict | None = None) -> None:
        if description is not None:
            (home / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(description))
        monkeypatch.setattr(clusters, "ADDRESS", "10.0.0.1:6379")
        alive = [{"Alive": True, "Resources": node} for node in nodes]
        dead = [{"Alive": False, "Resources": {"CPU": 64, "GPU": 8}}]
        monkeypatch.setattr("ray.nodes", lambda: alive + dead)

    return join


@pytest.mark.parametrize(
    ("nodes", "description", "asked"),
    [
        ([{"CPU": 4}], None, Resources(gpus=1.0)),
        ([{"CPU": 4}], None, Resources(cpus=5.0)),
        ([{"CPU": 4}, {"CPU": 1, "GPU": 1}], None, Resources(cpus=2.0, gpus=0.5)),
        ([{"CPU": 3}], GPU_TYPES, Resources(gpus=2.0)),
        ([{"CPU": 3}], {**GPU_TYPES, "max_workers": 0}, Resources(gpus=1.0)),
        ([{"CPU": 3}] * 3, MACHINES, Resources(gpus=1.0)),
    ],
)
def test_what_can_never_be_placed_is_refused_at_once(
    joined, nodes, description, asked, monkeypatch
):
    joined(nodes, description)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(UserError, match="no node of the cluster has or will have"):
        refuse_impossible(asked)


@pytest.mark.parametrize(
    ("nodes", "description", "asked", "most"),
    [
        ([{"CPU": 3}], GPU_TYPES, Resources(gpus=1.0), 2),
        ([{"CPU": 3}], GPU_TYPES, Resources(gpus=0.25), 8),
        ([{"CPU": 3}], GPU_TYPES, Resources(), 16),
        ([{"CPU": 2}, {"CPU": 4, "GPU": 1}], None, Resources(gpus=0.5), 2),
        ([{"CPU": 2}, {"CPU": 4, "GPU": 1}], None, Resources(), 6),
        ([{"CPU": 2}, {"CPU": 2}], MACHINES, Resources(), 4),
        ([{"CPU": 2}], None, Resources(concurrent=1), 1),
    ],
)
def test_what_fits_or_may_yet_fit_goes_on(joined, nodes, description, asked, most):
    joined(nodes, description)
    refuse_impossible(asked)
    assert max_workers(asked) == most


def test_a_machine_that_may_yet_join_is_waited_for(joined, monkeypatch):
    joined([{"CPU": 3}] * 2, MACHINES)
    monkeypatch.setattr("time.sleep", lambda _: joined([{"CPU": 3}] * 2 + [{"CPU": 3, "GPU": 1}]))
    refuse_impossible(Resources(gpus=1.0))

    joined([{"CPU": 3}] * 2, MACHINES)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("time.monotonic", itertools.count(0, 50).__next__)
    with pytest.raises(UserError, match="asks for 1 CPU and 1 GPU"):
        refuse_impossible(Resources(gpus=1.0))


def test_a_share_of_several_gpus_is_refused():
    with pytest.raises(UserError, match=r"--gpus-per-trial 1\.5"):
        Resources(gpus=1.5)


class Jobs:
    """A cluster with a job whose console grows at each look, and whose tunnel breaks."""

    def __init__(self, breaks: set[int]) -> None:
        self.looks, self.breaks, self.tunnels = 0, breaks, 0

    @contextlib.contextmanager
    def jobs(self):
        self.tunnels += 1
        yield self

    def get_job_status(self, job):
        self.looks += 1
        if self.looks in self.breaks:
            raise ConnectionResetError("asleep")
        return submit.JobStatus.SUCCEEDED if self.looks > 5 else submit.JobStatus.RUNNING

    def get_job_logs(self, job):
        return "".join(f"line {i}\n" for i in range(self.looks))

    def get_job_info(self, job):
        return SimpleNamespace(driver_exit_code=None, message="")


def test_following_survives_a_broken_tunnel_and_shows_each_line_once(monkeypatch, capsys):
    monkeypatch.setattr(submit, "POLL", 0)
    job = Jobs(breaks={2, 4})
    assert submit._follow(cast(Cluster, job), "job") == 0
    assert job.tunnels == 3
    out, err = capsys.readouterr()
    assert out == "".join(f"line {i}\n" for i in range(6))
    assert err.count("the connection is lost") == 2


def test_a_cluster_that_stays_away_is_given_up(monkeypatch):
    monkeypatch.setattr(submit, "POLL", 0)
    monkeypatch.setattr("time.monotonic", itertools.count(0, 300).__next__)
    with pytest.raises(UserError, match="--attach comes back to it"):
        submit._follow(cast(Cluster, Jobs(breaks=set(range(1000)))), "job")


def test_attach_comes_back_to_the_last_job_of_this_study(monkeypatch):
    known = [
        SimpleNamespace(submission_id="toy-1", start_time=1, entrypoint="python a.py"),
        SimpleNamespace(submission_id="toy-2", start_time=2, entrypoint="python b.py"),
        SimpleNamespace(submission_id="toyota-3", start_time=3, entrypoint="python c.py"),
    ]

    @contextlib.contextmanager
    def jobs():
        yield SimpleNamespace(list_jobs=lambda: known)

    monkeypatch.setattr(submit, "Cluster", lambda _: SimpleNamespace(jobs=jobs, name="c"))
    monkeypatch.setattr(submit, "_see_through", lambda *job: job[3:])
    assert submit._attach("toy", Path("c.yaml")) == ("toy-2", "python b.py")
    with pytest.raises(UserError, match="has no job of other"):
        submit._attach("other", Path("c.yaml"))


def test_a_cluster_that_does_not_answer_is_started_once(monkeypatch):
    started = []

    @contextlib.contextmanager
    def jobs():
        if not started:
            raise UnreachableError("down")
        yield SimpleNamespace(submit_job=lambda **what: what["entrypoint"])

    fake = SimpleNamespace(jobs=jobs, name="c", up=lambda: started.append(1))
    monkeypatch.setattr(submit, "Cluster", lambda _: fake)
    monkeypatch.setattr(submit, "_see_through", lambda *job: job[3])
    command = [str(submit.ROOT / "sweeps/cath.py"), "--submit", "c.yaml", "--seeds", "3"]
    ran = submit._submit("cath", Path("c.yaml"), command)
    assert (ran, started) == ("python sweeps/cath.py --seeds 3", [1])


def test_options_that_say_where_stay_here():
    command = [
        "x.py",
        "--seeds",
        "3",
        "--submit",
        "c.yaml",
        "--json",
        "--attach=d.yaml",
        "--set=a=1",
    ]
    assert submit.options(command) == ["--seeds", "3", "--json", "--set=a=1"]


def test_a_script_outside_the_repository_is_refused(tmp_path):
    with pytest.raises(UserError, match="is outside"):
        submit._entrypoint([str(tmp_path / "mine.py")])


@pytest.mark.parametrize("text", [None, "[1, 2]", "a: [", "provider: {}"])
def test_a_file_that_describes_no_cluster_is_refused(text, tmp_path):
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match="is no cluster file"):
        Cluster(path)
