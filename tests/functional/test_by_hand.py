"""Functions with a gradient by hand: every one is of the kind whose call is cheap."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
import torch

from lmzoo import functional
from lmzoo.functional.by_hand import ByHand


def written() -> list[type[torch.autograd.Function]]:
    """All there are under `lmzoo/functional`."""
    for module in pkgutil.walk_packages(functional.__path__, functional.__name__ + "."):
        importlib.import_module(module.name)
    found = below(torch.autograd.Function)
    return [one for one in found if one.__module__.startswith(functional.__name__)]


def below(kind: type) -> Iterator[type]:
    for one in type.__subclasses__(kind):
        yield one
        yield from below(one)


def test_there_is_no_other_kind() -> None:
    found = written()
    assert len(found) >= 8
    assert [one for one in found if not issubclass(one, ByHand)] == []


@pytest.mark.parametrize("one", written(), ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_its_signature_is_read_and_not_made(one: type[ByHand]) -> None:
    assert inspect.signature(one.forward) is inspect.signature(one.forward)
    assert "ctx" not in inspect.signature(one.forward).parameters
