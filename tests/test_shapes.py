"""The check of shapes in signatures, which all tests of tensors rely on."""

import beartype
import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.token_scores import scored_mask
from tests.shapes import check_once


@pytest.fixture
def halves(monkeypatch):
    """A function whose output has the declared shape for inputs of even width only."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", False)

    def halve(x: Float[Tensor, "B E"]) -> Float[Tensor, "B E"]:
        _, width = x.shape
        half = x[:, : width // 2]
        return torch.cat([half, half], dim=1)

    return check_once(halve, typechecker=beartype.beartype)


def test_every_combination_of_shapes_is_checked(halves):
    # Shapes that were checked before are not checked again.
    for width in (2, 2, 4):
        even = torch.zeros(3, width)
        assert halves(even).shape == (3, width)
    odd = torch.zeros(3, 5)
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        halves(odd)
    with pytest.raises(jaxtyping.TypeCheckError, match="parameters"):
        halves(even.long())


def test_functions_of_the_package_are_checked(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", False)
    tokens = torch.zeros(2, 3).long()
    three_lengths = torch.ones(3).long()
    with pytest.raises(jaxtyping.TypeCheckError):
        scored_mask(tokens, three_lengths)
