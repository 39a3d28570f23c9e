"""Run every test of this folder with kernels and with torch operations."""

import pytest

from lmzoo.kernels.cpu import blas


@pytest.fixture(params=["kernels", "torch"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch operations run on a GPU, or on a CPU where kernels have no BLAS routines."""
    if request.param == "torch":
        monkeypatch.setattr(blas, "HAS_PRODUCTS", False)
