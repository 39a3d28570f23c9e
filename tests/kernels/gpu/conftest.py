"""Fixtures of the tests of GPU kernels."""

import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Outputs are NaN until a kernel writes them."""
    for module in (torch, torch.Tensor):
        for name in ("empty_like", "new_empty"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, _filled(getattr(module, name)))


def _filled(function):
    def call(*args, **kwargs):
        tensor = function(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    return call
