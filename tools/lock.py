"""Renew `constraints.txt`: the version of every distribution that an installation brings.

    python tools/lock.py            # or `make lock`: the newest versions
    python tools/lock.py --keep     # only adds pins for what is new in pyproject.toml

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


def main() -> None:
    """Write `constraints.txt`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="keep the pins that are there")
    options: tuple[str, ...] = ()
    if parser.parse_args().keep:
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


if __name__ == "__main__":
    main()
