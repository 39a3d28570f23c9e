"""The private names of Ray that lmzoo uses: at most six, each with a test of its effect.

| name | effect | tested by |
|---|---|---|
| `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER` | keeps a Ray that the sweep starts on loopback | here |
| `DEFAULT_ENV_VARS` of Ray Tune | empty: an actor uses an idle process | test_cluster_start.py |
| `RayActorError` in Tune's actor manager | a worker that Ray killed for memory is a death | here |
| `node:__internal_head__` | marks the head among the nodes | here |
| `_global_node` of Ray's worker | shows whether Ray lives, and kills it | test_stops.py |
| `ConsolePopen` of Ray's services | Ray's processes have a session of their own | test_stops.py |

All other names are marked as an API of Ray (`PublicAPI`, `DeveloperAPI`), or are in Ray's API
reference. A minor version of Ray may change private names: pyproject.toml has an upper bound.
"""

import ast
import importlib
from unittest.mock import Mock

import pytest
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import OutOfMemoryError

from tests.lab.cluster.test_cluster_start import run_python
from tests.lab.sweep.processes import ROOT

PRIVATE = {
    "ray.tune.execution.class_cache.DEFAULT_ENV_VARS",
    "ray.air.execution._internal.actor_manager",
    "ray._private.services",
    "ray._private.worker",
}
"""Imported names that are no API; the two others are strings."""
REFERENCE = {"ray.job_submission.JobSubmissionClient", "ray.ObjectRef"}
"""Names in Ray's API reference that Ray does not mark."""
PRIVATE_STRINGS = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "node:__internal_head__")

LISTENERS = """
import os, sys, time
from lmzoo.lab.cluster.connection import cluster
import ray
from tests.lab.sweep.processes import descendants, listening
with cluster():
    ray.get(ray.remote(lambda: 1).remote())
    time.sleep(2)
    addresses = listening(set(descendants(os.getpid())) | {os.getpid()})
    nodes = [sorted(n["Resources"]) for n in ray.nodes()]
print(*addresses)
print(nodes)
"""


def used_names(tree: ast.Module) -> set[str]:
    """Return the names of Ray that a module imports or uses: `ray.util.state.list_nodes`."""
    aliases, names = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases.update({a.asname or a.name.split(".")[0]: a.name.split(".")[0]
                            for a in node.names if a.name.split(".")[0] == "ray"})  # fmt: skip
            names |= {a.name for a in node.names if a.name.startswith("ray.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ray":
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                names.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = ast.unparse(node).split(".")
            if parts[0] in aliases and all(part.isidentifier() for part in parts):
                names.add(".".join([aliases[parts[0]], *parts[1:]]))
    return names


def resolve(name: str) -> tuple[object, object]:
    """Return what a name means, and what it is defined in."""
    module, parts = name, []
    while True:
        try:
            value: object = importlib.import_module(module)
            break
        except ImportError:
            module, _, part = module.rpartition(".")
            parts.insert(0, part)
    owner = value
    for part in parts:
        owner, value = value, getattr(value, part)
    return value, owner


def is_api(name: str) -> bool:
    value, owner = resolve(name)
    public = not any(part.startswith("_") for part in name.split("."))
    if type(value) is type(ast):  # a module; its names are checked one by one
        return public
    return public and (hasattr(value, "_annotated") or hasattr(owner, "_annotated"))


def test_the_names_of_ray_in_lmzoo_are_an_api_or_listed():
    names: dict[str, str] = {}
    for path in (ROOT / "lmzoo").rglob("*.py"):
        for name in used_names(ast.parse(path.read_text())):
            names.setdefault(name, str(path.relative_to(ROOT)))
    assert "ray.init" in names, "the scan finds nothing"
    assert set(names) >= PRIVATE, "listed, but not used"
    unlisted = {
        name: path for name, path in names.items()
        if not is_api(name) and not any(name.startswith(known) for known in PRIVATE | REFERENCE)
    }  # fmt: skip
    assert not unlisted
    assert len(PRIVATE) + len(PRIVATE_STRINGS) <= 6


@pytest.mark.parametrize(
    "name", ["ray.experimental.internal_kv._internal_kv_put", "ray.scripts.scripts.main"]
)
def test_a_name_that_is_no_api_is_found(name):
    module, _, attribute = name.rpartition(".")
    for text in (f"from {module} import {attribute} as x", f"import ray\nray{name[3:]}()"):
        found = used_names(ast.parse(text))
        assert name in found
        assert not is_api(name)


def test_strings_that_are_private_names_stand_in_one_place():
    sources = {path: path.read_text() for path in (ROOT / "lmzoo").rglob("*.py")}
    for name in PRIVATE_STRINGS:
        assert [path.name for path, text in sources.items() if name in text], name
        assert sum(text.count(f'"{name}"') for text in sources.values()) == 1, name


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_ray_listens_on_loopback_only_and_marks_its_head():
    """Without the switch, Ray listens on all addresses: anybody in the network may connect."""
    done = run_python("-c", LISTENERS)
    assert done.returncode == 0, done.stderr
    addresses, nodes = done.stdout.splitlines()
    assert len(addresses.split()) > 5, "Ray's sockets are not found"
    outside = [a for a in addresses.split() if not is_loopback(a)]
    assert not outside, outside
    assert "node:__internal_head__" in nodes


def is_loopback(address: str) -> bool:
    """Return True for 127.x.x.x and ::1, as /proc/net writes them, byte by byte reversed."""
    version_4 = address.removeprefix("0" * 16 + "FFFF0000")
    return (len(version_4) == 8 and version_4.endswith("7F")) or address == "0" * 24 + "01000000"


def test_a_worker_that_ray_killed_for_memory_is_a_death_and_not_the_end_of_the_sweep(monkeypatch):
    """Ray's own manager raises a RuntimeError for this, which ended a sweep with a traceback."""
    import lmzoo.lab.sweep.driver.ray_backend  # noqa: F401

    deaths = []
    actor = TrackedActor(1, on_error=lambda actor, error: deaths.append(error))
    task = TrackedActorTask(actor)
    manager = RayActorManager(Mock())
    monkeypatch.setattr(manager, "_cleanup_actor", Mock())
    manager._actor_task_failed(task, OutOfMemoryError("low"))
    assert [type(error) for error in deaths] == [OutOfMemoryError]
