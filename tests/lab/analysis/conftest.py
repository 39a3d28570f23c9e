"""A fixture for tests of tables: an empty study's folder."""

import pytest

from tests.lab.analysis.browser import launched
from tests.lab.analysis.toy_study import ToyStudy


@pytest.fixture
def toy(tmp_path):
    return ToyStudy(tmp_path / "toy")


@pytest.fixture
def no_charts(monkeypatch):
    """Pages without charts, which take a second."""
    monkeypatch.setattr("lmzoo.lab.analysis.report.page.is_complete", lambda _: False)


@pytest.fixture
def browser():
    """A browser; without one, the test is skipped before it renders a page."""
    with launched() as opened:
        yield opened
