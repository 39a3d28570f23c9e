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
        return torch.cat([x[:, : x.shape[1] // 2]] * 2, dim=1)

    return check_once(halve, typechecker=beartype.beartype)


def test_every_combination_of_shapes_is_checked(halves):
    for width in (2, 2, 4):
        assert halves(torch.zeros(3, width)).shape == (3, width)
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        halves(torch.zeros(3, 5))
    with pytest.raises(jaxtyping.TypeCheckError, match="parameters"):
        halves(torch.zeros(3, 2, dtype=torch.int64))


def test_functions_of_the_package_are_checked(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", False)
    with pytest.raises(jaxtyping.TypeCheckError):
        scored_mask(torch.zeros(2, 3, dtype=torch.int64), torch.ones(3, dtype=torch.int64))
