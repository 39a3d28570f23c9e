"""What lmzoo needs of Ray itself, on one cluster in one process, and the private names it uses.

| name | effect | tested by |
|---|---|---|
| `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER` | keeps a Ray that the sweep starts on loopback | here |
| `node:__internal_head__` | marks the head among the nodes | here |
| `_global_node` of Ray's worker | shows whether Ray lives, and kills it | test_stops.py |
| `ConsolePopen` of Ray's services | Ray's processes have a session of their own | test_stops.py |
| `Config`, `AuthenticationTokenLoader` | the token of a Ray that is imported | here |
| `--python_worker_command` of a raylet | its workers are forked | here |

Without a private name the sweep uses Ray as it is, and says so; a Ray that listens on other
addresses than loopback is ended (test_cluster_start.py).
"""

import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .processes import ROOT, descendants, listening

PRIVATE = {"ray._private", "ray._raylet"}
"""Imported names that are no API; two others are strings."""
IMPORT = re.compile(r"^\s*from (ray[\w.]*) import (\w+(?:, \w+)*)", re.MULTILINE)
USE = re.compile(r"\bray\.(?:\w+\.)*_\w+")
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_the_names_of_ray_in_lmzoo_are_an_api_or_listed():
    unlisted = set()
    for path in (ROOT / "lmzoo").rglob("*.py"):
        text = path.read_text()
        for module, names in IMPORT.findall(text):
            for name in names.split(", "):
                with contextlib.suppress(ImportError):
                    importlib.import_module(f"{module}.{name}")
                value = getattr(importlib.import_module(module), name, None)
                is_module = type(value) is type(re) and "._" not in module
                if not is_module and not hasattr(value, "_annotated"):
                    unlisted.add(f"{module}.{name}")
        unlisted |= {name for name in USE.findall(text) if f"{name}." not in str(PRIVATE)}
    assert unlisted == PRIVATE


LEAKS = """
import time
from lmzoo import Point, Study, main

def leaks(settings, seed, epochs):
    kept = []
    for epoch in range(1, epochs + 1):
        kept.append(b"x" * (400 << 20))
        time.sleep(0.5)
        yield {"epoch": epoch, "valid": 1.0 + 0.1 / epoch}

def good(settings, seed, epochs):
    for epoch in range(1, epochs + 1):
        time.sleep(0.2)
        yield {"epoch": epoch, "valid": 1.1 + 0.1 / epoch}

POINTS = (Point("good", good), Point("leaks", leaks))
STUDY = Study(name="leaks", question="?", points=POINTS, search={}, epochs=12, samples=1, seeds=2)
if __name__ == "__main__":
    main(STUDY)
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_a_worker_that_ray_killed_for_memory_is_a_death_and_not_the_end_of_the_sweep(tmp_path):
    """A function that leaks, on a node with little memory: the other point ends."""
    (tmp_path / "leaks.py").write_text(LEAKS)
    memory = dict(re.findall(r"(\w+): +(\d+) kB", Path("/proc/meminfo").read_text()))
    used = 1 - int(memory["MemAvailable"]) / int(memory["MemTotal"])
    done = subprocess.run(
        [sys.executable, "leaks.py", "--out", "s"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
        "RAY_memory_usage_threshold": f"{used + 0.16:.3f}", "RAY_memory_monitor_refresh_ms": "250"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert "Ray killed" in done.stderr
    assert done.returncode == 1


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_one_cluster():
    # In a process of its own: here, other tests have imported Ray before its token was set.
    code = f"from {__name__} import check_cluster; check_cluster()"
    environment = {**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\nTrue\n", done.stderr
    assert "SIGTERM received" not in done.stderr, "Ray's own handler is installed"


PLAIN = """
import logging, os, sys
logging.basicConfig()
from lmzoo.lab.cluster import connection
import ray
from tests.lab.sweep.processes import descendants, listening

connection.CONFIG = connection.SERVICES = connection.CONSTANTS = connection.NUM_CPUS = None
connection.MISSING.append("ray._raylet.Config")
with connection.cluster():
    answer = ray.get(ray.remote(lambda: 3).remote())
    addresses = {*listening({*descendants(os.getpid()), os.getpid()})}
print(answer)
print(*addresses)
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_without_private_names_ray_is_used_as_it_is():
    environment = {**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "3", done.stderr
    assert {*lines[1].split()} <= LOOPBACK
    assert "has no ray._raylet.Config: the sweep uses it as it is" in done.stderr


def check_cluster() -> None:
    """Start Ray once; it ends by SIGTERM, which is handled until its end."""
    from lmzoo.base.stops import STOPS
    from lmzoo.lab.cluster import connection

    def report_handler() -> None:
        status = Path("/proc/self/status").read_text()
        caught = int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16)
        sys.__stdout__.write(f"{bool(caught >> signal.SIGTERM - 1 & 1)}\n")

    with STOPS.installed():
        try:
            with connection.cluster():
                node = connection.own_node()
                end = node.kill_all_processes
                node.kill_all_processes = lambda **how: (report_handler(), end(**how))
                time.sleep(2)  # Ray's processes end that long after the thread that started them
                check_nodes()
                check_forks()
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
        except KeyboardInterrupt:
            report_handler()


def check_nodes() -> None:
    """Ray listens on loopback only; without the switch anybody in the network may connect."""
    import ray

    addresses = listening({*descendants(os.getpid()), os.getpid()})
    assert len(addresses) > 5, "Ray's sockets are not found"
    assert {*addresses} <= LOOPBACK, addresses
    assert "node:__internal_head__" in ray.nodes()[0]["Resources"]


def check_forks() -> None:
    """Workers are forked, also after one was killed, and without their server are not."""
    import ray

    from lmzoo.lab.cluster import connection

    class Actor:
        def facts(self) -> tuple[int, bool]:
            return os.getppid(), "torch" in sys.modules

    (server,) = connection._FORKS.values()
    for _ in range(3):
        actor = ray.remote(Actor).remote()
        assert ray.get(actor.facts.remote()) == (server.pid, True)
        ray.kill(actor)
    server.kill()
    server.wait()
    actors = [ray.remote(Actor).remote() for _ in range(os.cpu_count() + 2)]
    assert False in {loaded for _, loaded in ray.get([a.facts.remote() for a in actors])}
