"""The ways of a sweep: products of large steps or of small ones, loops or operations."""

import pytest

from lmzoo.functional import processor
from lmzoo.functional.kernels import blas
from lmzoo.functional.scan import products, words


@pytest.fixture(params=["whole", "afterwards", "in step", "in step, by operations"])
def products_made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which products a step makes; operations are what a GPU does instead of compiled loops.

    Whole sweeps are compiled where loops can make products, by whichever cell has such.
    """
    if request.param == "whole":
        return
    monkeypatch.setattr(blas, "FOUND", False)
    for module in (products, words):
        monkeypatch.setattr(module, "LARGE", 2**62 if request.param == "afterwards" else 1)
    if request.param.endswith("operations"):
        monkeypatch.setattr(processor, "TYPES", frozenset())
