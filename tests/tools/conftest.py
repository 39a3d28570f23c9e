"""Modules of tools/ can be imported, as its scripts do."""

import sys
from pathlib import Path

import pytest

from tests.lab.analysis.toy_study import ToyStudy

sys.path.append(str(Path(__file__).parents[2] / "tools"))


@pytest.fixture
def toy(tmp_path):
    return ToyStudy(tmp_path / "toy")
