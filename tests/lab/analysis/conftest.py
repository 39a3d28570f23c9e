"""A fixture for tests of tables: an empty study's folder."""

import pytest

from tests.lab.analysis.toy_study import ToyStudy


@pytest.fixture
def toy(tmp_path):
    return ToyStudy(tmp_path / "toy")
