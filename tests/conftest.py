"""What holds for all tests."""

import gc
import os
from pathlib import Path

import jaxtyping
import pytest

TENSORS = (
    *("blocks", "cells", "data", "decode", "emissions", "functional", "inspect", "kernels"),
    *("laws_of_training", "models", "test_contract.py", "test_laws_can_fail.py"),
)
"""Tests in which the shapes in signatures are checked; that takes half of the time of a sweep.

Training is checked by the law of packing in `test_contract.py`.
"""


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave millions of objects of imported modules out of all later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    first = item.path.relative_to(Path(__file__).parent).parts[0]
    checked = first in TENSORS and not item.get_closest_marker("unchecked")
    jaxtyping.config.update("jaxtyping_disable", not checked)


@pytest.fixture(scope="session", autouse=True)
def no_fsync():
    """A test that ends a process does not end the machine; what is in its cache is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
