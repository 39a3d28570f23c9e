"""Fixtures of the tests of GPU kernels."""

import contextlib
import os

import pytest
import torch

NAMES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
"""Every function that returns memory as it is."""


def pytest_addoption(parser):
    """`pytest tests/kernels/gpu/interpreted.py --device cuda` runs the kernels on a GPU."""
    words = "cpu (Triton's interpreter) or cuda"
    parser.addoption("--device", default="cpu", help=words)


@pytest.fixture(autouse=True)
def on_device(request):
    """All tensors of a test are on the device."""
    name = request.config.getoption("--device", default="cpu")
    scope = contextlib.nullcontext()
    if name != "cpu":
        scope = torch.device(name)
    with scope:
        torch.empty(0)  # torch lists its factories at the first call: before `poisoned` wraps them
        yield


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Outputs are NaN until a kernel writes them."""
    for name in NAMES:
        for owner in (torch, torch.Tensor):
            function = getattr(owner, name, None)
            if function is not None:
                monkeypatch.setattr(owner, name, _filled(function))


@pytest.fixture(autouse=True)
def like_a_gpu(monkeypatch):
    """The interpreter rounds as a GPU does, and checks every address."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        from tests.kernels.gpu import memory_check, tensor_cores

        tensor_cores.install(monkeypatch)
        memory_check.install(monkeypatch)


def _filled(function):
    def call(*args, **kwargs):
        tensor = function(*args, **kwargs)
        has_nan = tensor.is_floating_point() or tensor.is_complex()
        if has_nan:
            return tensor.fill_(float("nan"))
        return tensor

    return call
