"""Both ways of making the products of a sweep, which large steps and small ones take."""

import pytest

from lmzoo.functional.scan import products


@pytest.fixture(params=["afterwards", "in step"])
def products_made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LARGE", 1 if request.param == "in step" else 2**62)
