"""Starts Ray on this machine, or joins the cluster in RAY_ADDRESS, or the Ray of this process.

A Ray that the process has started is used and left as it is: actors have no name or a namespace of
their own. Ray reads its settings when it is imported. A notebook may import it before, and starts
its own afterwards. So the settings of a sweep are set in the imported Ray, too, and restored.
"""

import errno
import importlib
import io
import ipaddress
import json
import logging
import os
import random
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from lmzoo.base.environment import ROOT
from lmzoo.base.errors import UserError
from lmzoo.base.plain import FieldsDict
from lmzoo.base.restored import quiet, variables
from lmzoo.base.stops import STOPS
from lmzoo.lab.cluster import forks
from lmzoo.lab.cluster.address import ray_environment, ray_folder
from lmzoo.lab.store.local import delete_abandoned, is_alive, temporary_folder

VARIABLES = ray_environment(os.environ)
"""Set as long as Ray runs."""
_RAY_ADDRESS = {**os.environ, **VARIABLES}.get("RAY_ADDRESS", "")
AUTH_MODE = "RAY_AUTH_MODE"

WITHOUT_AUTH = {name: text for name, text in VARIABLES.items() if name != AUTH_MODE}
with variables(WITHOUT_AUTH):
    import ray


MISSING: list[str] = []
"""Private names that this version of Ray does not have."""


def private(module: str, name: str) -> Any:
    """Return a private name of Ray; None if this version has none."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        found = None
    if found is None:
        MISSING.append(f"{module}.{name}")
    return found


SERVICES = private("ray._private", "services")
WORKER = private("ray._private", "worker")
CONSTANTS = private("ray._private", "ray_constants")
CONFIG = private("ray._raylet", "Config")
TOKENS = private("ray._raylet", "AuthenticationTokenLoader")
NUM_CPUS = private("ray._private.utils", "get_num_cpus")
private("ray._private.services", "ConsolePopen")

_FORKS: dict[Path, "subprocess.Popen[bytes]"] = {}
"""Folder -> the server that forks the workers of this machine, once it is started."""


@contextmanager
def _apart() -> Iterator[None]:
    """Give the processes that Ray starts meanwhile a session of their own.

    No signal to the sweep ends them, too. Afterwards, Ray's own function is back.
    """
    popen = getattr(SERVICES, "ConsolePopen", None)
    if popen is None:
        yield
        return

    def start(command: list[str], *given: Any, **options: Any) -> Any:
        python = sys.executable
        for folder in _FORKS:
            own = str(folder / "python")
            quoted = f"={subprocess.list2cmdline([own])} "  # as Ray does, of the raylet
            names = {python: own}
            command = [names.get(w, w).replace(f"={python} ", quoted) for w in command]
        return popen(command, *given, start_new_session=True, **options)

    SERVICES.ConsolePopen = start
    try:
        yield
    finally:
        SERVICES.ConsolePopen = popen


EXCLUDED = [".git", ".venv", "runs", "docs", "tests", "benchmarks", "drills", "**/__pycache__"]
"""Parts of the repository that a node does not need."""
ADDRESS = _RAY_ADDRESS
"""Address of the cluster to join; "" starts Ray on this machine."""
# Ray's own word for a cluster that it starts here.
if ADDRESS == "local":
    ADDRESS = ""
START_ATTEMPTS = 5
"""How often starting Ray is attempted."""
STAYS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors that the next attempt meets, too."""
STARTED = "lmzoo"
"""A file that a sweep writes into its session of Ray once that has its processes."""
NEW_SECONDS = 60.0
"""Age up to which another session may not have them yet."""
CONNECT_SECONDS = 5.0
"""How long the head may take to accept a connection; Ray itself would try for a minute."""
LOG = logging.getLogger("lmzoo.lab.sweep")


QUIET: FieldsDict = {"log_to_driver": False, "logging_level": "ERROR"}
_EARLY: list[tuple[ThreadPoolExecutor, Future[None]]] = []
"""What `begin` has started and `cluster` has not taken over."""
_ABANDONED = threading.Event()
_GUEST = threading.Event()
"""Whether the sweep uses a Ray that is not its own."""
_CHANGED = ExitStack()
"""What `begin` has changed in this process, which `_disconnect` restores."""


def begin():
    """Start Ray, or join the cluster, in a thread; `abandon` ends it if there is no use for it."""
    _CHANGED.callback(random.setstate, random.getstate())  # Ray draws from it
    _CHANGED.enter_context(quiet("ray", "ray.tune", level=logging.ERROR))
    executor = ThreadPoolExecutor(2)
    if ray.is_initialized():
        _CHANGED.enter_context(_as_guest())
        _EARLY.append((executor, executor.submit(lambda: None)))
        return
    _CHANGED.enter_context(_own_settings())
    _EARLY.append((executor, executor.submit(_connect)))
    STOPS.install()  # the import of Ray has installed handlers


def _connect():
    if ADDRESS:
        _join()
    else:
        _start()


@contextmanager
def _as_guest() -> Iterator[None]:
    """Use the Ray that the process has started."""
    global ADDRESS
    before = ADDRESS
    # As on a cluster: this process did not start the Ray that it uses.
    ADDRESS = ray.get_runtime_context().gcs_address
    _GUEST.set()
    try:
        yield
    finally:
        ADDRESS = before
        _GUEST.clear()


@contextmanager
def _own_settings() -> Iterator[None]:
    """Set the variables of a sweep, and what Ray has read of them at its import."""
    mode = os.environ.get(AUTH_MODE, "disabled")
    names = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "ENABLE_RAY_CLUSTER"}
    owner: FieldsDict = getattr(CONSTANTS, "__dict__", {})
    before = FieldsDict()
    for variable, text in VARIABLES.items():
        name = names.get(variable, variable)
        if text == "0" and name in owner:
            before[name] = owner[name]
    own = VARIABLES
    if not (CONFIG and TOKENS):
        own = WITHOUT_AUTH
    try:
        with variables(own):
            _authenticate(os.environ.get(AUTH_MODE, mode))
            owner.update(dict.fromkeys(before, False))
            yield
    finally:
        owner.update(before)
        _authenticate(mode)


def _authenticate(mode: str):
    if CONFIG and TOKENS:
        CONFIG.initialize(json.dumps({"AUTH_MODE": mode}))
        TOKENS.instance().reset_cache()


def abandon():
    """End what `cluster` has not taken over. Ray that starts while Python ends may hang."""
    _ABANDONED.set()
    while _EARLY:
        executor, connected = _EARLY.pop()
        connected.exception()
        _disconnect()
        executor.shutdown()
    _ABANDONED.clear()


class _WithoutRay(io.TextIOBase):
    """Writes to stderr what is printed, but for Ray's own errors: the coordinator says them."""

    def write(self, text: str, /) -> int:
        is_of_ray = threading.current_thread().name.startswith("ray_")
        if is_of_ray:
            return len(text)
        return sys.stderr.write(text)


@contextmanager
def cluster(meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Join the cluster at `ADDRESS`, or start Ray on loopback; disconnect from it at the end.

    `meanwhile` is called in a thread while Ray starts, which takes seconds; its error is raised
    here.
    """
    if not _EARLY:
        begin()
    # The executor stays open: Ray's processes end when the thread that started them ends.
    # Ray reports dead processes on stdout, also while it ends; stdout is for the answer.
    executor, connected = _EARLY.pop()
    with redirect_stdout(_WithoutRay()), executor:
        others = executor.submit(meanwhile)
        try:
            connected.result()
            STOPS.install()  # at once: Ray has installed a handler of its own
            others.result()
            yield
        finally:
            connected.exception()
            _disconnect()


def _disconnect():
    """Leave Ray. Its core takes the handler of SIGTERM with it, some seconds before the end."""
    if _GUEST.is_set():
        _CHANGED.close()
        return
    node = own_node()
    if hasattr(node, "kill_all_processes"):
        kill_all = node.kill_all_processes
        node.kill_all_processes = lambda **how: (STOPS.install(), kill_all(**how))
    ray.shutdown()
    STOPS.install()
    _delete_session()
    while _FORKS:
        _, server = _FORKS.popitem()
        assert server.stdin
        server.stdin.close()
        server.wait()
    delete_abandoned()  # those of the workers
    _CHANGED.close()


def _delete_session():
    """Delete the logs and sockets of the Ray that this process has started; Ray keeps them."""
    if not ADDRESS:
        folder = Path(ray_folder(os.environ), "ray")
        for session in folder.glob(f"session_*_{os.getpid()}"):
            shutil.rmtree(session, ignore_errors=True)
        delete_abandoned_sessions(folder)


def delete_abandoned_sessions(folder: Path):
    """Delete the sessions of Ray, in its folder, of this account whose processes have ended.

    A driver that is killed cannot delete its own. A session is used while the process in its name
    lives or a raylet answers at its socket; that of others may be new.
    """
    for session in folder.glob("session_*_*"):
        with suppress(OSError, ValueError):
            found = session.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            age = time.time() - found.st_ctime
            if age < NEW_SECONDS and not (session / STARTED).exists():
                continue
            pid = int(session.name.rpartition("_")[2])
            if not is_alive(pid) and not _answers(session):
                shutil.rmtree(session, ignore_errors=True)


def _answers(session: Path) -> bool:
    for path in session.glob("sockets/*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            return True
    return False


def own_node() -> Any:
    """Return what Ray knows of the processes that it has started here; None before."""
    return getattr(WORKER, "_global_node", None)


def is_ray_unusable() -> bool:
    """Return whether Ray still starts, or one of its processes on this machine has ended."""
    node = own_node()
    with suppress(Exception):
        if not ray.is_initialized():
            return True
        if node is not None:
            return bool(node.dead_processes())
    return False


def kill_local_ray():
    """Kill the Ray that this sweep started, without waiting for anything."""
    if _GUEST.is_set():  # it is not the sweep's
        return
    node = own_node()
    with suppress(Exception):
        if node is not None:
            node.kill_all_processes(check_alive=False, allow_graceful=False)
    _delete_session()


def _start():
    """Start Ray; on a busy machine its processes may time out, so it is attempted several times."""
    check_temporary_folder(os.environ)
    # A driver that was killed could not delete its own.
    delete_abandoned_sessions(Path(ray_folder(os.environ)) / "ray")
    # Under such a limit Ray holds all threads at its start, so that nothing could be said then.
    limits = short_of_limits("Ray")
    if limits:
        LOG.warning(limits)
    with suppress(OSError):  # then each worker imports torch itself
        if not _FORKS and not list(Path("/dev").glob("nvidia[0-9]*")):
            folder = temporary_folder("forks")
            _FORKS[folder] = forks.start_server(folder)
    if MISSING:
        LOG.warning("%s", plain_ray())
    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            with _apart():
                ray.init(address="local", num_cpus=cores(), include_dashboard=False, **QUIET)
        except Exception as error:  # Ray raises plain exceptions
            reason = re.split(r"\.\s|\n", str(error))[0]
            if isinstance(error, OSError) and error.errno in STAYS:
                raise UserError(
                    f"Ray did not start: {reason}; make the file or folder accessible, or set "
                    "RAY_TMPDIR to another folder"
                ) from error
            if not attempts_left or STOPS.requested.is_set() or _ABANDONED.is_set():
                raise UserError(
                    f"Ray did not start in {START_ATTEMPTS} attempts ({reason}); the machine may "
                    "be too busy: run the same command again later"
                ) from error
            LOG.warning("Ray did not start (%s); trying again", reason)
        else:
            _check_loopback()
            # From now on a session without living processes is abandoned, however new it is.
            folder = getattr(own_node(), "get_session_dir_path", None)
            if folder:
                Path(folder(), STARTED).touch()
            return


def cores() -> int:
    """Return how many cores this process may use: Ray does not see `taskset`, `srun -c 2`."""
    own = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        own = len(os.sched_getaffinity(0))
    if NUM_CPUS:
        # Ray knows the limits of a container, which `cpu_count` does not.
        own = min(int(NUM_CPUS()), own)
    return max(1, own)  # a container may have half a core


def plain_ray() -> str:
    """Return what a sweep does without the private names that this version of Ray lacks."""
    without = "its processes share the signals of the sweep"
    if not (CONFIG and TOKENS):
        without = "other accounts of this machine can connect to it, as it has no token"
    names = ", ".join(MISSING)
    return f"Ray {metadata.version('ray')} has no {names}: the sweep uses it as it is; {without}"


def _check_loopback():
    """Raise a `UserError` if others in the network can connect to the Ray that was started."""
    address = ray.nodes()[0]["NodeManagerAddress"]
    if not ipaddress.ip_address(address).is_loopback:
        ray.shutdown()
        raise UserError(
            f"Ray {metadata.version('ray')} listens on {address}, where others reach it; "
            "run the study before `import ray`, or start Ray yourself and set RAY_ADDRESS"
        )


def short_of_limits(start: str) -> str:
    """Return which limit may stop Ray at its start, where it then holds all threads; or ""."""
    for number, needed, unit, words in (
        (resource.RLIMIT_AS, 32, 1e9, "GB of address space (ulimit -v; h_vmem of SGE)"),
        (resource.RLIMIT_FSIZE, 32, 1e9, "GB in a file (ulimit -f)"),
        (resource.RLIMIT_NPROC, 1000, 1, "threads (ulimit -u)"),
    ):
        limit = resource.getrlimit(number)[0] / unit
        if 0 <= limit < needed:  # no limit is -1
            hangs = f"{start} may hang at its start, as it may have {limit:.3g} {words}"
            return f"{hangs}; ask for {needed} or more"
    return ""


LONGEST = 107 - len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""Bytes of the name of the temporary folder; on Linux that of a socket has 107."""


def check_temporary_folder(environ: Mapping[str, str]):
    """Raise a `UserError` if Ray cannot use the name of the folder."""
    folder = ray_folder(environ)
    name = "TMPDIR"
    if environ.get("RAY_TMPDIR"):
        name = "RAY_TMPDIR"
    if not folder.isascii() or not folder.startswith("/"):
        raise UserError(f"{name} is {folder}; Ray needs a path from / in ASCII, such as /tmp")
    with suppress(OSError):  # Ray makes the folder, and waits for its files
        free = shutil.disk_usage(folder).free
        if free < 1_000_000:
            raise UserError(f"{name} ({folder}) has {free} bytes left; make space, or set another")
    size = len(os.fsencode(folder))
    if size > LONGEST:
        raise UserError(
            f"{name} has a name of {size} bytes ({folder}), but Ray's sockets allow "
            f"{LONGEST}; set RAY_TMPDIR to a shorter one, such as /tmp"
        )


def _join():
    """Join the cluster, of which this machine must be a node."""
    host, _, port = ADDRESS.rpartition(":")
    if "://" in ADDRESS:
        raise UserError(
            f"RAY_ADDRESS={ADDRESS} is not an address that a sweep can join; run it on a node of "
            "the cluster with RAY_ADDRESS=HOST:6379, or from elsewhere with `ray job submit`"
        )
    try:
        if port.isdecimal():
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster responds at {ADDRESS} ({error}); start it with `ray up`, or set "
            "RAY_ADDRESS=local to use this machine only"
        ) from None
    # Nodes may have another version; a submitted job has its source already.
    source = dict[str, Any]()
    if (ROOT / "pyproject.toml").exists() and "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        source = {"working_dir": str(ROOT), "excludes": EXCLUDED}
    try:
        ray.init(address="auto", runtime_env=source, **QUIET)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"this machine cannot join the Ray cluster at {ADDRESS} ("
            f"{' '.join(str(error).split())[:200]}); run the sweep on a node of the cluster with "
            "its token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN), or from elsewhere with `ray job "
            "submit`; RAY_ADDRESS=local uses this machine only"
        ) from None
