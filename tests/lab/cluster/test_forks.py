"""A worker is forked from a process that has imported its modules, and is as Python starts it."""

import json
import os
import subprocess
import sys

import pytest

from lmzoo.lab.cluster import forks
from lmzoo.lab.store.local import is_alive
from tests.lab.sweep.processes import wait_until

SCRIPT = """
import json, os, sys
print(json.dumps({
    "parent": os.getppid(), "argv": sys.argv[1:], "folder": os.getcwd(), "path": sys.path[0],
    "own": os.environ.get("OWN"), "home": "HOME" in os.environ, "nice": os.nice(0),
    "group": os.getpgid(0) == os.getpid(), "imported": "colorsys" in sys.modules,
    "name": __name__,
}))
"""


@pytest.fixture
def server(tmp_path):
    process = forks.start_server(tmp_path, ["colorsys"])
    yield process
    process.stdin.close()
    assert process.wait(60) == 0, "it ends with the driver"


def run(tmp_path, name=forks.WORKER, before=(), options=()) -> dict:
    """Start a script as Ray does."""
    (tmp_path / "code").mkdir(exist_ok=True)
    (tmp_path / "code" / name).write_text(SCRIPT)
    script = tmp_path / "code" / name
    words = [tmp_path / "python", "-u", *before, script, *options, "--a=1", "b c"]
    # No HOME, to see that the environment is not that of the server.
    environment = {"OWN": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        list(map(str, words)), cwd=tmp_path, env=environment, capture_output=True, text=True,
        preexec_fn=lambda: os.nice(3), check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_worker_is_forked_with_the_arguments_files_and_environment_that_ray_gave(
    server, tmp_path
):
    expected = {"argv": ["--a=1", "b c"], "folder": str(tmp_path), "path": str(tmp_path / "code")}
    expected |= {"own": "1", "home": False, "nice": os.nice(0) + 3, "name": "__main__"}
    # What only a forked process has.
    own = {"parent": server.pid, "imported": True, "group": True}
    for _ in range(2):
        assert run(tmp_path) == expected | own
    # A program that is not forked.
    agent = run(tmp_path, "agent.py")
    assert agent.items() >= expected.items()


def test_a_worker_of_tune_is_forked_with_its_variables(server, tmp_path):
    context = {"env_vars": {"OWN": "of Tune"}, "py_executable": sys.executable, "java_jars": []}
    options = [f"{forks.CONTEXT}={json.dumps(context)}", f"{forks.LANGUAGE}=PYTHON"]
    found = run(tmp_path, before=[f"/ray/{forks.SETUP}"], options=options)
    assert found["own"] == "of Tune"
    assert found["imported"]
    assert found["argv"] == ["--a=1", "b c"]


def test_a_worker_that_needs_more_than_variables_keeps_the_program_of_ray():
    words = (forks.SETUP, forks.WORKER)
    more = {forks.CONTEXT: json.dumps({"command_prefix": ["nice"]})}
    assert forks.without_setup(words, more) == words


def test_without_the_server_a_worker_imports_what_it_needs(tmp_path):
    server = forks.start_server(tmp_path, ["no_such_module"])
    assert server.wait(60) == 1
    server.stdin.close()
    assert run(tmp_path)["imported"] is False
    # Then the script starts Python as usual.
    assert sys.executable in (tmp_path / "python").read_text()


@pytest.mark.parametrize("name", ["dashboard/agent.py", "log_monitor.py"])
def test_a_process_without_use_waits_for_the_end_of_its_parent(server, tmp_path, name):
    words = [tmp_path / "python", "-u", tmp_path / name, "--node-id=n", f"--session-dir={tmp_path}"]
    starter = "import subprocess as s, sys; print(s.Popen(sys.argv[1:]).pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", starter, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout
        pid = int(parent.stdout.readline())
        ports = [tmp_path / f"{port}_n" for port in forks.PORTS]
        wait_until(lambda: all(file.exists() and file.read_text() == "-1" for file in ports))
        assert is_alive(pid)
    wait_until(lambda: not is_alive(pid))
