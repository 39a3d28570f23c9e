"""Renew `constraints.txt`: the version of every distribution that an installation brings.

    python tools/lock.py            # or `make lock`: the newest versions
    python tools/lock.py --keep     # only adds pins for what is new in pyproject.toml
    python tools/lock.py --check    # without an index: has each requirement a pin that it allows?

For each supported version of Python, pip resolves all dependencies and extras of `pyproject.toml`
without installing them. A version that is the same everywhere becomes one line; others carry a marker.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13")
KEPT = ("torch==2.13.0",)
"""Pins that renewing does not move: a CPU build of this version of torch is widely available."""
HEADER = """\
# Every distribution that an installation brings, for Python {}. Made by `make lock`.
# torch is a version that also has a CPU build: an unpinned torch brings gigabytes of CUDA libraries.
"""


def requirements() -> list[str]:
    """Return the dependencies of the package and of all its extras, and what builds it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        content = tomllib.load(file)
    project = content["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    wanted = [*content["build-system"]["requires"], *project["dependencies"], *extras]
    return sorted(line for line in set(wanted) if not line.startswith(f"{project['name']}["))


def resolve(python: str, wanted: list[str], *options: str) -> dict[str, str]:
    """Return name -> version of all that pip would install under this version of Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
            "--report", str(report), "--target", folder, "--only-binary=:all:",
            "--python-version", python, *options, *KEPT, *wanted,
        ]  # fmt: skip
        subprocess.run(command, check=True)
        installed = json.loads(report.read_text())["install"]
    found = {one["metadata"]["name"]: one["metadata"]["version"] for one in installed}
    return {
        re.sub(r"[-_.]+", "-", name).lower(): version.partition("+")[0]
        for name, version in found.items()
    }


def lock(found: dict[str, dict[str, str]]) -> list[str]:
    """Return the pins of Python version -> name -> version, as sorted lines."""
    lines = []
    for name in sorted(set().union(*found.values())):
        versions = {python: pins[name] for python, pins in found.items() if name in pins}
        if len(set(versions.values())) == 1:
            lines.append(f"{name}=={next(iter(versions.values()))}")
            continue
        lines += [
            f'{name}=={version} ; python_version == "{python}"'
            for python, version in versions.items()
        ]
    return lines


def read(lines: list[str]) -> dict[str, dict[str, str]]:
    """Return Python version -> name -> version of pins, the reverse of `lock`."""
    found: dict[str, dict[str, str]] = {python: {} for python in PYTHONS}
    for line in lines:
        pin = Requirement(line)
        (version,) = pin.specifier
        for python, pins in found.items():
            if pin.marker is None or pin.marker.evaluate({"python_version": python}):
                pins[pin.name] = version.version
    return found


def faults(lines: list[str]) -> list[str]:
    """Return the requirements that have no pin that they allow, and lines that are not `lock`'s."""
    found = read(lines)
    unpinned = [f"{line}: not as it is written" for line in lines if line not in lock(found)]
    for wanted in map(Requirement, requirements()):
        for python, pins in found.items():
            is_needed = wanted.marker is None or wanted.marker.evaluate({"python_version": python})
            version = pins.get(canonicalize_name(wanted.name), "")
            if is_needed and not (version and wanted.specifier.contains(version)):
                unpinned.append(f"{wanted} has the pin {version or 'nothing'} for Python {python}")
    return unpinned


def main() -> int:
    """Write or check `constraints.txt`; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="keep the pins that are there")
    parser.add_argument("--check", action="store_true", help="write nothing, ask no index")
    given = parser.parse_args()
    if given.check:
        lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
        found_faults = faults(lines)
        sys.stderr.write("\n".join([f"{len(lines)} pins", *found_faults]) + "\n")
        return int(bool(found_faults))
    options: tuple[str, ...] = ()
    if given.keep:
        options = ("--constraint", str(LOCK))
    wanted = requirements()
    found = {}
    for python in PYTHONS:
        sys.stderr.write(f"resolving for Python {python}\n")
        found[python] = resolve(python, wanted, *options)
    lines = lock(found)
    text = HEADER.format(", ".join(PYTHONS)) + "\n".join(lines) + "\n"
    LOCK.write_text(text)
    sys.stderr.write(f"{len(lines)} pins\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
