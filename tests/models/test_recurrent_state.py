"""Decoding state of recurrent models: `state_size` counts all its floats."""

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


def floats(state: object, sequences: int) -> int:
    """Return the number of floats per sequence."""
    parts = [part for part in tree_leaves(state) if isinstance(part, Tensor)]
    assert all(len(part) == sequences for part in parts)
    return sum(math.prod(part.shape[1:]) for part in parts)


@pytest.mark.parametrize(("fields", "size"), CASES)
@torch.no_grad()
def test_state_size_counts_every_float_of_the_decoding_state(
    fields: dict[str, Any], size: int
) -> None:
    model = tiny("recurrent_lm", **fields).eval()
    tokens, _ = batch(model.task)
    assert model.state_size == size
    state = model.begin(len(tokens))
    for token in tokens[:, :3].unbind(1):
        _, state = model.advance(state, token)
        assert isinstance(state, RecurrentState)
        # `next_scores` is a function of the states; with one start the evidence is not needed.
        counted = [state.layers, state.input_stats]
        if fields.get("starts") != 1:
            counted.append(state.evidence)
        assert floats(counted, len(tokens)) == size


def test_time_std_has_no_state_of_fixed_size() -> None:
    assert tiny("recurrent_lm", norm="time_std").state_size is None
