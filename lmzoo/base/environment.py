"""What a number depends on, in three rings, and the second of them: the environment.

| ring | what is in it | a change |
|---|---|---|
| identity | the user's code and files: function, cell, script, config, corpus | another run |
| environment | what this module records | the same run; said where it is read |
| outside | data and checkpoints that were opened besides | as the environment |

The process that trains a run records the environment with it, at its start and at its end:

    lmzoo, commit        version of the package, and the commit of its clone
    repository           commit of the repository of the working folder
    python, torch, numpy, numba, triton, cuda
    device, cpu, capability, threads, kernels
    packages             version of each distribution that a function has imported after the worker
                         began, or that a script, also of a command, names in an import
    variables            hash of each variable that the study reads; null: not set

A "+" after a commit: tracked files have changes. The study reads a variable if its files have the
name in capitals and quotes, as in `os.environ["LEVEL"]`, or a command has it as `$LEVEL`. Its value
is a hash, because it may be a secret.

A command imports packages in processes of its own, so that their versions are looked up at its
start and at its end, where its Python finds them. The variables of a program are those that it was
given: what it sets itself is its code.

A difference counts if it can change a number. For a row of the zoo these are torch, numpy, numba
and triton; the pins hold for the rest, and losses of other devices differ by rounding only. For a
program everything counts but `QUIET`. What only one of two runs has recorded is no difference. The
part of a version after "+" names a build, and does not count. Standard library only.
"""

import contextlib
import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from lmzoo.base.plain import FieldsDict
from lmzoo.base.version import __version__

# Patterns are texts: to compile them takes a share of `import lmzoo` that few processes need.
NUMERIC = ("torch", "numpy", "numba", "triton")
"""Distributions that compute the losses of a row of the zoo."""
QUIET = (
    r"lmzoo.*|commit|repository|folders|cuda|cpu|capability|threads|kernels|ray|optuna|polars.*|tensorboard"
    r"|rich|typer|click|pydantic.*|annotated-types|tqdm|colorama|colorlog|packaging|typing.ext.*"
    r"|typing-insp.*|protobuf|grpcio|psutil|llvmlite|pytest|setuptools|pip"
)
"""What changes no number of a program: it serves the sweep, or it changes rounding only."""
IMPORT = rb"(?m)^(?:.*;)?[ \t]*(?:import|from)[ \t]+([\w., \t]+)"
VARIABLE = rb"""["']([A-Z][A-Z0-9_]+)["']|\$\{?([A-Za-z_]\w*)"""
OURS = "RAY_|LMZOO_|OMP_|MKL_|CUDA_|(TMPDIR|PWD)$"
"""Variables that a sweep sets for its workers."""
ROOT = Path(__file__).parents[2]
"""The clone, or site-packages if the package is installed."""
COMMIT = "LMZOO_COMMIT"
"""Environment variable with the commit, for copies of a clone that have no history."""
SECONDS = 60.0
"""Git may take this long: on a starved machine ten were too few, and records had no commit."""
Environment = Mapping[str, Any]
Place = tuple[Any, ...]
"""The second of a look at versions, and the folders of packages, without any `sys.path`; (): what
this process has seen first."""


def environment(
    modules: Iterable[str] = (),
    sources: Collection[bytes] = (),
    given: Mapping[str, str] = os.environ,
    place: Place = (),
) -> FieldsDict:
    """Return the environment of this process, or of a command that it starts.

    `modules` are those that a program has imported since `begin_study`, and those of which its
    `sources`, its files and its command, have the names. `given` are its variables. The `place` of
    a command is that of its packages; those of this process have the versions of its start.
    """
    # A copy of the modules, as a thread may import meanwhile.
    imported = {module.partition(".")[0] for module in tuple(modules) if module not in _BEFORE}
    for text in sources:
        imported.update(word.decode() for word in _imported(text))
    found = _fixed(Path.cwd()) | {
        "python": _python(place),
        "cuda": None,
        "device": "cpu",
        "threads": None,
        "kernels": "",
    }
    torch: Any = sys.modules.get("torch")
    if torch:
        found["cuda"] = torch.version.cuda
        found["threads"] = torch.get_num_threads()
        # To ask for the name would start CUDA.
        if torch.cuda.is_initialized():
            found["device"] = torch.cuda.get_device_name()
    if "lmzoo.kernels.cpu.compiled" in sys.modules:
        found["kernels"] = "compiled"
    for name in NUMERIC:
        found[name] = _version(name, place)
    found["packages"] = _packages(imported, place)
    found["folders"] = place[1:]
    found["variables"] = _variables(sources, given)
    return {name: value for name, value in found.items() if value}


_BEFORE: set[str] = set()


def begin_study():
    """Remember what a worker has imported before the study's code."""
    _BEFORE.update(sys.modules)


def differences(old: Environment, new: Environment, *, program: bool) -> dict[str, tuple[str, str]]:
    """Return what can have changed a number: name -> its value in both environments."""
    known = counted(old, program=program)
    now = counted(new, program=program)
    # What only one has recorded is no difference.
    both = known.keys() & now.keys()
    changed = [name for name in sorted(both) if known[name] != now[name]]
    return {name: (known[name], now[name]) for name in changed}


def counted(environment: Environment, *, program: bool) -> dict[str, str]:
    """Return what can change a number, without levels and names of builds."""
    found = {}
    for name, value in environment.items():
        if isinstance(value, Mapping):
            found |= counted(value, program=program)
            continue
        is_counted = name in NUMERIC
        if program:
            # Of a program nothing is known, so everything counts.
            is_counted = not re.fullmatch(QUIET, name)
        if not is_counted:
            continue
        if value is None:
            found[name] = "not set"
        else:
            found[name], _, _ = str(value).partition("+")
    return found


Values = dict[str, set[str]]
"""Name of what can differ -> the values that the runs of a point have."""


def apart(points: Mapping[str, Values], reference: str) -> dict[str, str]:
    """Return the points that share no value of something with the reference, and of what.

    Their whole difference may be that of the value, so they have no verdict.
    """
    # Without a reference, nothing is apart.
    there = points.get(reference, {})
    found = {}
    for point, of_point in points.items():
        for name, values in of_point.items():
            if name in there and not values & there[name]:
                found[point] = name
    return found


def present(old: Environment) -> FieldsDict:
    """Return what is known here and now of the things that another process has recorded."""
    place = place_of(old.get("folders", ()))
    names = NUMERIC + tuple(old.get("packages", ()))
    variables = old.get("variables", ())
    return {
        "python": _python(place),
        "packages": _installed(names, place),
        "variables": {name: _hashed(os.environ.get(name)) for name in variables},
    }


def place_of(folders: Iterable[str] = ()) -> Place:
    """Return the place of a command's packages, to be looked at now."""
    return (int(time.monotonic()),) + tuple(folders)


def _python(place: Place) -> str:
    """Return the version of Python; of another one, as the names of its folders have it."""
    for folder in place[1:]:
        found = re.search(r"python(3[\d.]*)", folder)
        if found:
            return found[1]
    return platform.python_version()


@functools.cache
def _fixed(folder: Path) -> FieldsDict:
    """Return what does not change while the process is in a folder."""
    model, capability = cpu()
    return code_version() | {
        "repository": find_commit(folder, above=True),
        "cpu": model,
        "capability": capability,
    }


@functools.cache
def cpu() -> tuple[str, str]:
    """Return the model of this machine's CPU, and its instruction sets for vectors."""
    text = ""
    with contextlib.suppress(OSError):  # Linux only
        text = Path("/proc/cpuinfo").read_text()
    facts = dict(re.findall(r"^(model name|flags|Features)\s*: (.+)", text, re.MULTILINE))
    # x86 has flags, ARM has features.
    flags = facts.get("flags", facts.get("Features", ""))
    sets = re.findall(r"\b(?:avx|amx|fma|asimd|sve)\w*", flags)
    return facts.get("model name") or platform.processor(), " ".join(sorted(sets))


@functools.lru_cache(1 << 12)
def _version(name: str, place: Place = ()) -> str:
    folders = list(place[1:] or sys.path)
    for distribution in metadata.distributions(name=name, path=folders):
        return distribution.version  # the first one is imported
    return ""


_distributions = functools.cache(metadata.packages_distributions)


def _packages(modules: set[str], place: Place) -> dict[str, str]:
    """Return the distributions of top-level modules, and their versions."""
    if not modules:  # to read the distributions takes 0.2 s
        return {}
    known = _distributions()
    # A module and its distribution may have different names: `PIL`, `pillow`.
    names = {name for module in modules for name in known.get(module, [module])}
    return _installed(sorted(names), place)


def _installed(names: Iterable[str], place: Place) -> dict[str, str]:
    """Return the versions of the distributions that are installed."""
    versions = {name: _version(name, place) for name in names}
    return {name: version for name, version in versions.items() if version}


def _imported(source: bytes) -> Iterator[bytes]:
    for line in re.findall(IMPORT, source):
        yield from re.findall(rb"\w+", line)


def _variables(sources: Collection[bytes], given: Mapping[str, str]) -> dict[str, str | None]:
    names = {
        (in_quotes or of_shell).decode()
        for text in sources
        for in_quotes, of_shell in re.findall(VARIABLE, text)
    }
    others = [name for name in sorted(names) if not re.match(OURS, name)]
    return {name: _hashed(given.get(name)) for name in others}


def _hashed(value: str | None) -> str | None:
    """Return a short hash of a text; none and an empty one as they are."""
    if not value:
        return value
    return hashlib.sha256(value.encode(errors="replace")).hexdigest()[:8]


@functools.cache
def code_version() -> dict[str, str]:
    """Return the package's version as `lmzoo` and the short hash of the commit as `commit`."""
    return {"lmzoo": __version__, "commit": os.environ.get(COMMIT) or find_commit(ROOT)}


def find_commit(root: Path, *, above: bool = False) -> str:
    """Return the commit of the clone in a folder; "" if it is none or git fails.

    `above`: or of a clone that has the folder. The package may be installed below another one.
    """
    # Git looks above by itself, and would find another repository.
    if not above and not (root / ".git").exists():
        return ""
    # No tags: they may differ between clones of one commit.
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    if done.returncode != 0:
        return ""
    return done.stdout.strip()
