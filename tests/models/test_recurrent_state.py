"""A recurrent model carries what it says: states, evidence, running sums (S1)."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lmzoo.models.recurrent.recurrent_lm import RecurrentState
from tests.tiny import batch, tiny

CASES: list[tuple[dict[str, Any], int]] = [
    ({}, 4),
    ({"starts": 1}, 4),
    ({"starts": 3}, 3 * 4 + 3),
    ({"cell": "lstm", "num_layers": 2}, 2 * 2 * 4),
    ({"cell": "lstm", "num_layers": 2, "starts": 2}, 2 * (2 * 2 * 4) + 2),
    ({"norm": "time_std_causal"}, 4 + 2 * 4),
    ({"norm": "time_std_causal", "starts": 3, "cell": "hm_lstm"}, 3 * (2 * 2 * 4 + 1) + 3 + 2 * 4),
]


def floats(carried: object, sequences: int) -> int:
    """Numbers of one sequence."""
    parts = [part for part in tree_leaves(carried) if isinstance(part, Tensor)]
    assert all(len(part) == sequences for part in parts)
    return sum(math.prod(part.shape[1:]) for part in parts)


@pytest.mark.parametrize(("fields", "size"), CASES)
@torch.no_grad()
def test_every_float_that_is_carried_is_counted(fields: dict[str, Any], size: int) -> None:
    model = tiny("recurrent_lm", **fields).eval()
    tokens, _ = batch(model.task)
    assert model.state_size == size
    carried = model.begin(len(tokens))
    for token in tokens[:, :3].unbind(1):
        _, carried = model.advance(carried, token)
        assert isinstance(carried, RecurrentState)
        # What is told of each state can be computed from it again; of one start nothing is learnt.
        counted = [carried.layers, carried.input_stats]
        if fields.get("starts") != 1:
            counted.append(carried.evidence)
        assert floats(counted, len(tokens)) == size


def test_where_every_later_token_changes_every_state_nothing_of_fixed_size_is_carried() -> None:
    assert tiny("recurrent_lm", norm="time_std").state_size is None
