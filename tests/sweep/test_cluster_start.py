"""Ray of our own that does not start, as on a busy machine, is started again."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from lmzoo.errors import UserError
from lmzoo.sweep import cluster as clusters

TAKEN = """
import os
from lmzoo.sweep.cluster import cluster
import lmzoo.sweep.ray_backend
import ray
from ray.tune.execution.class_cache import _ActorClassCache
from tests.sweep.processes import descendants, wait_until

class Trainable:
    def process(self):
        return os.getpid()

def idle():
    return {pid for pid, name in descendants(os.getpid()).items() if name.startswith("ray::IDLE")}

with cluster():
    wait_until(lambda: bool(idle()), 60)
    before = idle()
    actor = _ActorClassCache().get(Trainable).remote()
    taken = ray.get(actor.process.remote()) in before
print(taken)
"""


@pytest.mark.parametrize("failures", [0, clusters.STARTS - 1, clusters.STARTS])
def test_ray_that_does_not_start_is_started_again(monkeypatch, failures):
    calls = []

    def init(**_):
        calls.append(1)
        if len(calls) <= failures:
            raise Exception("The current node timed out during startup. This could")

    monkeypatch.setattr(clusters, "ADDRESS", "")
    monkeypatch.setattr(clusters, "TOO_LATE", False)  # other tests have imported Ray
    monkeypatch.setattr(clusters.ray, "init", init)
    refused = failures == clusters.STARTS
    ends = pytest.raises(Exception, match="timed out") if refused else contextlib.nullcontext()
    with ends, clusters.cluster():
        assert len(calls) == failures + 1
    assert len(calls) == min(failures + 1, clusters.STARTS)


@pytest.fixture
def slow_ray(monkeypatch):
    """A Ray that starts when `begun` is set, and tells in `order` what was done to it."""
    begun, order = threading.Event(), []

    def init(**_):
        assert begun.wait(60)
        order.append("started")

    monkeypatch.setattr(clusters, "ADDRESS", "")
    monkeypatch.setattr(clusters, "TOO_LATE", False)  # other tests have imported Ray
    monkeypatch.setattr(clusters.ray, "init", init)
    monkeypatch.setattr(clusters.ray, "shutdown", lambda: order.append("ended"))
    return begun, order


def test_what_is_to_be_done_meanwhile_does_not_wait_for_ray(slow_ray):
    begun, order = slow_ray

    def meanwhile():
        order.append("meanwhile")
        begun.set()

    with clusters.cluster(meanwhile):
        assert order == ["meanwhile", "started"]
    assert order[2:] == ["ended"]


@pytest.mark.parametrize("error", [UserError("no such thing"), KeyboardInterrupt()])
def test_ray_is_ended_once_it_is_there_if_what_is_done_meanwhile_fails(slow_ray, error):
    begun, order = slow_ray

    def meanwhile():
        threading.Timer(0.1, begun.set).start()
        raise error

    with pytest.raises(type(error)), clusters.cluster(meanwhile):
        order.append("never")
    assert order == ["started", "ended"]


def test_ray_lives_for_longer_than_its_start_and_sigterm_is_ctrl_c():
    """Its processes end with the thread that started them, within a second or two."""
    code = (
        "import os, signal, time\n"
        "from lmzoo.sweep.cluster import cluster\n"
        "import ray\n"
        "try:\n"
        "    with cluster():\n"
        "        time.sleep(3)\n"
        "        said = ray.get(ray.remote(lambda: 'alive').remote(), timeout=60)\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print(said)\n"
    )
    environment = {**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr
    assert "SIGTERM received" not in done.stderr, "Ray's handler, which may end the process"


def test_a_study_that_imports_ray_first_is_refused(tmp_path):
    """Ray would start behind a token that this process never read, and wait for ever."""
    study = tmp_path / "early.py"
    study.write_text(
        "import ray\nfrom sweeps.gru_ablation import STUDY\n"
        "from lmzoo.sweep import main\nmain(STUDY)\n"
    )
    done = subprocess.run(
        [sys.executable, study, "--storage", tmp_path / "runs"],
        env={**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()[-1:]
    assert said.startswith("error: ray was imported before"), done.stderr
    assert "Traceback" not in done.stderr


def test_actors_of_tune_take_processes_that_ray_has_started_already():
    done = subprocess.run(
        [sys.executable, "-c", TAKEN],
        env={**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stderr
