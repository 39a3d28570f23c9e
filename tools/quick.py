"""Check what changed since main in less than a minute: `make quick`.

    python tools/quick.py [--since main] [--seconds 40] [--only-tests] [FILE ...]

Format, lint, types and import contracts of everything, and tests: those that changed, then those
named like a changed file, then those that import one. FILEs are in place of those that changed.
Tests stop after `--seconds`; how many did not run is printed. `make check` and `make test` run
everything.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
CHECKS = (["ruff", "format", "--check", "."], ["ruff", "check", "."], ["lint-imports"], ["pyright"])


def changed_files(since: str) -> list[str]:
    """Return the Python files that differ from the fork of `since`, untracked files included."""
    base = _git("merge-base", "HEAD", since).strip()
    files = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    return [name for name in dict.fromkeys(files.split()) if name.endswith(".py")]


def tests_of(changed: list[str]) -> list[str]:
    """Return the test files to run, the nearest first."""
    tests = [path for path in (ROOT / "tests").rglob("test_*.py")]
    chosen = [ROOT / name for name in changed if Path(name).name.startswith("test_")]
    modules = [Path(name).with_suffix("") for name in changed if name.startswith("lmzoo/")]
    for module in modules:
        chosen += [path for path in tests if path.stem == f"test_{module.name}"]
    names = [".".join(module.parts) for module in modules if module.name != "__init__"]
    for path in tests:
        text = path.read_text()
        if any(f"{name} import" in text or f"import {name}" in text for name in names):
            chosen.append(path)
    return [str(path) for path in dict.fromkeys(chosen) if path.is_file()]


class Deadline:
    """A plugin of pytest that stops the session after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Let the session end, after this test, if its time is over."""
        if time.monotonic() > self.end:
            self.session.shouldstop = f"out of time after {nodeid}; `make test` runs the rest"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the session, which the end needs."""
        self.session = session


def failures(checks: list[subprocess.Popen[str]]) -> Iterator[str]:
    """Yield the output of every check that failed."""
    for check in checks:
        output, _ = check.communicate()
        if check.returncode:
            yield output


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def main() -> int:
    """Run the checks and the tests at the same time, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="in place of those that changed")
    parser.add_argument("--since", default="main", help="branch or commit to compare with")
    parser.add_argument("--seconds", type=float, default=40.0, help="time for the tests")
    parser.add_argument("--only-tests", action="store_true", help="no format, lint, types")
    options = parser.parse_args()
    asked = CHECKS
    if options.only_tests:
        asked = ()
    checks = [
        subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for command in asked
    ]  # fmt: skip
    changed = options.files or changed_files(options.since)
    tests = tests_of(changed)
    code = 0
    print(f"{len(changed)} changed files, {len(tests)} test files", flush=True)  # noqa: T201
    if tests:
        selection = ["-m", "not slow and not ray", "-x", *tests]
        code = pytest.main(selection, plugins=[Deadline(options.seconds)])
    stopped = code == pytest.ExitCode.INTERRUPTED
    failed = list(failures(checks))
    sys.stdout.write("".join(failed))
    passed = stopped or code in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
