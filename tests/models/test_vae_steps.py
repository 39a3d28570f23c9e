"""A VAE decodes token by token from its draws as if each prefix were read anew."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lmzoo.models.latent.vae import VAEState
from tests.laws.decoding import law_advance_equals_next_log_prob
from tests.models.limits import row
from tests.tiny import batch, tiny

CASES: list[tuple[dict[str, Any], int]] = [
    ({"samples": 1}, 4),
    ({"samples": 3}, 3 * 4 + 3),
    ({"samples": 3, "norm": "none"}, 3 * 4 + 3),
    ({"samples": 3, "cell": "lstm"}, 3 * 2 * 4 + 3),
    ({"samples": 3, "cell": "hm_lstm", "norm": "l2"}, 3 * (2 * 2 * 4 + 1) + 3),
    ({"samples": 3, "cell": {"name": "mgru", "mutations": [4]}, "norm": "std"}, 3 * 4 + 3),
    ({"samples": 3, "norm": "time_std_causal"}, 3 * 4 + 3 + 2 * 4),
]
"""Fields, and the numbers that are carried of a sequence."""

VAES = ("gru_vae", "gru_ternary_vae")


@pytest.mark.parametrize("name", VAES)
@pytest.mark.parametrize("fields", [fields for fields, _ in CASES])
def test_steps_agree_whatever_is_carried(name: str, fields: dict[str, Any]) -> None:
    """The draws' weights differ: parameters are spread, so that states matter."""
    law_advance_equals_next_log_prob(row(name, **fields))


@torch.no_grad()
@pytest.mark.parametrize("name", VAES)
@pytest.mark.parametrize(("fields", "size"), CASES)
def test_every_float_that_is_carried_is_counted(
    name: str, fields: dict[str, Any], size: int
) -> None:
    model = tiny(name, **fields).eval()
    assert model.state_size == size
    tokens, _ = batch(model.task)
    carried = model.begin(len(tokens))
    for token in tokens[:, :3].unbind(1):
        _, carried = model.advance(carried, token)
    assert isinstance(carried, VAEState)
    # What is told of each state can be computed from it again; of one draw nothing is learnt.
    counted = [carried.layers, carried.input_stats, carried.evidence if fields["samples"] > 1 else None]
    parts = [part for part in tree_leaves(counted) if isinstance(part, Tensor)]
    assert sum(math.prod(part.shape[1:]) for part in parts) == size


def test_where_every_later_token_changes_every_state_nothing_of_fixed_size_is_carried() -> None:
    model = tiny("gru_vae", norm="time_std")
    assert model.state_size is None
    assert not isinstance(model.begin(2), VAEState)


@torch.no_grad()
def test_what_was_read_tells_the_draws_apart() -> None:
    model = row("gru_vae", samples=3).eval()
    carried = model.begin(1)
    for token in torch.tensor([[1], [2], [0]]):
        _, carried = model.advance(carried, token)
    assert carried.evidence.shape == (1, 3)
    assert carried.evidence.unique().numel() == 3
