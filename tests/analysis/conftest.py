"""An empty study's folder to every test that asks for one."""

import pytest

from tests.analysis.synthetic import Made


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path / "toy")
