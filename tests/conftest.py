"""What holds for all tests."""

import gc
import os
import re
from collections import Counter
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

from tests import shapes

# The same examples in every run, and no test fails because the machine is busy.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("same")
shapes.install()
gc.disable()  # until all tests are collected

TENSORS = (
    *("blocks", "cells", "data", "decode", "emissions", "functional", "inspect", "kernels"),
    *("laws_of_training", "models", "test_contract.py", "test_laws_can_fail.py"),
)
"""Tests in which the shapes in signatures are checked; that takes half of the time of a sweep.

Training is checked by the law of packing in `test_contract.py`.
"""


EXPECTED_SKIPS = (
    "slow",
    "needs a chromium on the PATH",
    "no real data in",
    "no ptb.train.txt",
    "could not import 'jax'",
)
"""Beginnings of the reasons for which a test may be skipped where `make test` did the set-up."""


UNSTABLE = re.compile(
    r" at 0x|\{('[^':]*'|\"[^\":]*\"|\d+), |\b(\d{10,}\.\d\d|20\d\d-\d\d-\d\d \d\d:)"
)
"""An address, a set of several members or a time in the name of a test."""


def pytest_make_parametrize_id(val, argname: str):
    """Refuse the bytes of a gzip or zip file as a name: they hold the time."""
    if isinstance(val, bytes) and val.startswith((b"\x1f\x8b", b"PK\x03")):
        raise pytest.UsageError(f"{argname}: {val!r} is no name; give the parameter an id")


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Refuse names that differ between the processes of `make test`, which would run no test."""
    names = [item.nodeid for item in items if UNSTABLE.search(item.nodeid)]
    if names:
        raise pytest.UsageError(f"give ids that are equal in every process: {names[:3]}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Leave millions of objects of imported modules out of all later garbage collections."""
    gc.collect()
    gc.freeze()
    gc.enable()


def skips(config: pytest.Config) -> Counter[str]:
    """Return how many tests were skipped for each reason; of a worker of xdist, none."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    found = Counter()
    if terminal is not None:
        for report in terminal.stats.get("skipped", []):
            _, _, reason = report.longrepr
            found[reason.removeprefix("Skipped: ")] += 1
    return found


def pytest_terminal_summary(terminalreporter, config: pytest.Config):
    """Say how many tests were skipped, and why."""
    for reason, count in skips(config).most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session):
    """Fail on CI if a test was skipped for a reason that is not expected there."""
    new = [reason for reason in skips(session.config) if not reason.startswith(EXPECTED_SKIPS)]
    if new and "CI" in os.environ and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\ntests were skipped for new reasons: {new}")  # noqa: T201


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item):
    first = item.path.relative_to(Path(__file__).parent).parts[0]
    checked = first in TENSORS and not item.get_closest_marker("unchecked")
    jaxtyping.config.update("jaxtyping_disable", not checked)
    shapes.CHECKED.clear()
    torch.manual_seed(0)  # a test draws the same numbers, whatever ran before it in its process


@pytest.fixture(scope="session", autouse=True)
def one_time():
    """All ends of this process have one time, so that records can be compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmzoo.lab.store.records.now", lambda: "2026-01-01T00:00:00+00:00")
        yield


@pytest.fixture(scope="session", autouse=True)
def no_fsync():
    """A test that ends a process does not end the machine; what is in its cache is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
