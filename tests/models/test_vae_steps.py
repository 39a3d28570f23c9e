"""Stepwise decoding of VAEs equals scoring each prefix from its start."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lmzoo.laws.density import law_advance_equals_next_log_prob
from lmzoo.models.latent.vae import VAEState
from tests.models.equivalence import small
from tests.tiny import batch, tiny

CASES: list[tuple[dict[str, Any], int]] = [
    ({"samples": 1}, 4),
    ({"samples": 3}, 3 * (4 + 5)),
    ({"samples": 3, "norm": "none"}, 3 * (4 + 5)),
    ({"samples": 3, "cell": "lstm"}, 3 * (2 * 4 + 5)),
    ({"samples": 3, "cell": "hm_lstm", "norm": "l2"}, 3 * (2 * 2 * 4 + 1 + 5)),
    ({"samples": 3, "cell": {"name": "mgru", "mutations": [4]}, "norm": "std"}, 3 * (4 + 5)),
    ({"samples": 3, "norm": "time_std_causal"}, 3 * (4 + 5) + 2 * 4),
]
"""Config fields, and the number of floats in the decoding state; 5 are evidence and output."""

VAES = ("gru_vae", "gru_ternary_vae")


@pytest.mark.parametrize("name", VAES)
@pytest.mark.parametrize("fields", [fields for fields, _ in CASES])
def test_stepwise_decoding_equals_reading_the_whole_prefix(
    name: str, fields: dict[str, Any]
) -> None:
    """Parameters are scaled up, so that the draws have different weights."""
    law_advance_equals_next_log_prob(small(name, **fields))


@torch.no_grad()
@pytest.mark.parametrize("name", VAES)
@pytest.mark.parametrize(("fields", "size"), CASES)
def test_state_size_counts_every_float_of_the_decoding_state(
    name: str, fields: dict[str, Any], size: int
) -> None:
    model = tiny(name, **fields).eval()
    assert model.state_size == size
    tokens, _ = batch(model.task)
    state = model.begin(len(tokens))
    for token in tokens[:, :3].unbind(1):
        _, state = model.advance(state, token)
    assert isinstance(state, VAEState)
    parts = [part for part in tree_leaves(state) if isinstance(part, Tensor)]
    assert sum(math.prod(part.shape[1:]) for part in parts) == size


def test_time_std_has_no_state_of_fixed_size() -> None:
    model = tiny("gru_vae", norm="time_std")
    assert model.state_size is None
    assert not isinstance(model.begin(2), VAEState)


@torch.no_grad()
def test_log_evidence_differs_between_draws() -> None:
    model = small("gru_vae", samples=3).eval()
    state = model.begin(1)
    for token in torch.tensor([[1], [2], [0]]):
        _, state = model.advance(state, token)
    assert state.evidence.shape == (1, 3)
    assert state.evidence.unique().numel() == 3
