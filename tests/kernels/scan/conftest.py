"""The ways of a sweep: compiled whole, or operation by operation."""

import pytest

from lmzoo.kernels.cpu import blas


@pytest.fixture(params=["compiled", "by operations"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations are what a GPU does, and a processor whose loops find no products."""
    if request.param == "by operations":
        monkeypatch.setattr(blas, "FOUND", False)
