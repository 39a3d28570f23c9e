"""Ray's workers on this machine are forked from one process that has imported what they need.

An import of torch and the zoo takes 2.5 s of CPU and 200 MB in every process. Ray starts a worker
by a command, Python with the file of the worker. Here a small program takes the place of Python: it
sends its arguments, environment and open files to the server, which forks. Where there is no
server, and for other files, the program becomes Python. Standard library only.

It also takes the place of Ray's monitors and of the agent of its dashboard, which import for 2 s of
CPU and have no use: it says that it has no port, as Ray without its extra `default` does.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MODULES = ("lmzoo.trainables.door", "lmzoo.lab.sweep.worker.pack", "lmzoo.kernels.cpu.loaded")
"""What a worker imports; nothing of Ray, which reads the environment of a worker then."""
WORKER = "default_worker.py"
SETUP = "setup_worker.py"
"""Ray's program that sets the variables of a worker, and then starts Python anew."""
CONTEXT = "--serialized-runtime-env-context"
LANGUAGE = "--language"
"""Its options."""
UNUSED = ("/monitor.py", "/log_monitor.py", "/dashboard/agent.py")
PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
"""Files in which an agent says where it listens."""
BYTES = 1 << 20
SECONDS = 30.0
"""How long the server may import; Ray waits for a worker for 60 s."""


def start_server(folder: Path, modules: Sequence[str] = MODULES) -> "subprocess.Popen[bytes]":
    """Start the server; `python` in the folder, where its socket is, takes the place of Python.

    The server ends with its standard input. An OSError: its name is too long, or it is `noexec`.
    """
    address = folder / "socket"
    command = folder / "python"
    words = [sys.executable, "-S", __file__, str(address), sys.executable]
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o700)
    if not os.access(command, os.X_OK):
        raise PermissionError(f"{folder} is mounted without the right to execute")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(256)
        number = listener.fileno()
        return subprocess.Popen(
            [sys.executable, __file__, str(number)] + list(modules),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,
            env={"OMP_NUM_THREADS": "1", **os.environ},  # as Ray sets it for a worker of one CPU
        )


def serve(listener: socket.socket, modules: Sequence[str]) -> tuple[list[int], Any]:
    """Fork for each request; return its files, and what it says, in the new process."""
    gc.disable()  # which an import makes work for
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # the pages of what is imported stay shared
    gc.enable()
    # The kernel then removes workers that have ended; nobody waits for them here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in readable:
            os._exit(0)
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError, ValueError):
            client.sendall(b"1")  # it has not become Python meanwhile
            data, files, _, _ = socket.recv_fds(client, BYTES, 3)
            part = data
            while part:
                part = client.recv(BYTES)
                data += part
            given = json.loads(data)
            if os.fork() == 0:
                listener.close()
                return files, given
            client.sendall(b"1")
            for number in files:
                os.close(number)


def become(files: list[int], given: Any):
    """Run the file of a worker in this process."""
    words, environment, folder, niceness = given
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.setpgrp()  # Ray kills the group of a worker that has ended
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.nice(niceness - os.nice(0))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while words[0].startswith("-"):  # the options of Python
        words.pop(0)
    sys.argv = words
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


def stand_in(options: Mapping[str, str]):
    """Do nothing until the parent ends."""
    parent = os.getppid()
    node = options.get("--node-id")
    if node:
        for name in PORTS:
            Path(options["--session-dir"], f"{name}_{node}").write_text("-1")
    while os.getppid() == parent:
        time.sleep(1)


def without_setup(words: Sequence[str], options: Mapping[str, str]) -> Sequence[str]:
    """Set the variables that Ray's program would set, and return the words without it.

    Tune gives each trial a variable (ray-project/ray#28197). A worker that needs more keeps Ray's
    program.
    """
    context = json.loads(options.get(CONTEXT, "{}"))
    own = context.pop("env_vars", {})
    context.pop("py_executable", "")  # this one
    if any(context.values()):
        return words
    os.environ.update(own)
    return [
        word for word in words if not word.startswith((CONTEXT, LANGUAGE)) and SETUP not in word
    ]


def request(address: str, python: str, *words: str):
    """Let the server fork a worker, or stand for a process without use; else become Python."""
    options = {}
    for word in words:
        name, _, value = word.partition("=")
        options[name] = value
    if any(word.endswith(UNUSED) for word in words[:2]):
        return stand_in(options)
    words = tuple(without_setup(words, options))
    if any(word.endswith(WORKER) for word in words[:2]):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
            server.settimeout(SECONDS)
            server.connect(address)
            server.recv(1)
            given = words, dict(os.environ), str(Path.cwd()), os.nice(0)
            data = json.dumps(given).encode()
            sent = socket.send_fds(server, [data], [0, 1, 2])
            server.sendall(data[sent:])
            server.shutdown(socket.SHUT_WR)
            if server.recv(1):
                return
    os.execv(python, (python,) + words)


if __name__ == "__main__":
    del sys.path[: not sys.flags.safe_path]  # this folder
    if sys.argv[1].isdecimal():
        become(*serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]))
    else:
        request(*sys.argv[1:])
