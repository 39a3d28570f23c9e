"""Transformer decoders with relative positions, a local window or a stride."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from tests.laws.support import assert_close
from tests.models.equivalence import LENGTH, small
from tests.tiny import CLOSE

WIDE = {"width": 8, "spread": 0.3}


def test_sequences_longer_than_the_task_are_scored() -> None:
    model = small("relative_attention", **WIDE).eval()
    tokens = torch.randint(3, (2, 3 * LENGTH), generator=torch.Generator().manual_seed(0))
    scores = model.log_prob(tokens, torch.tensor([3 * LENGTH, 7]))
    assert scores.isfinite().all()
    state = model.begin(2)
    for token in tokens[:, :-1].unbind(1):
        dense, state = model.advance(state, token)
    assert_close(dense[:1].gather(1, tokens[:1, -1:]), scores[:1, -1:], CLOSE, "last score")


def test_the_state_of_a_local_window_has_the_stated_size() -> None:
    model = small("local_attention", window=3, **WIDE).eval()
    state = model.begin(1)
    for token in (1, 0, 2, 0, 1, 2):
        _, state = model.advance(state, torch.tensor([token]))
    assert sum(tensor.numel() for layer in state[1] for tensor in layer) == model.state_size
    assert small("sparse_attention").state_size is None


def test_a_stride_without_a_window_is_refused() -> None:
    with pytest.raises(UserError, match="stride=2 with window=0"):
        zoo.config("transformer_decoder", stride=2)
