"""Transformer decoders with relative positions, a local window or a stride."""

from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.config import to_dict
from lmzoo.errors import UserError
from lmzoo.laws import Law, density, learning
from tests.laws.support import assert_close, next_log_prob
from tests.models.equivalence import (
    LENGTH,
    assert_same_model,
    copy_weights,
    lag_dependence,
    permute_tokens,
    small,
)
from tests.tiny import CLOSE, every_sequence, tiny

WIDE = {"width": 8, "spread": 0.3}


@pytest.mark.parametrize(
    ("layers", "window", "reach"), [(1, 1, 1), (1, 2, 2), (2, 2, 3), (1, 3, 3)]
)
def test_a_window_limits_the_tokens_that_are_read(layers: int, window: int, reach: int) -> None:
    model = small("local_attention", layers=layers, window=window, **WIDE)
    assert lag_dependence(model) == [back <= reach for back in (1, 2, 3)]


def test_one_layer_with_a_stride_skips_a_position() -> None:
    model = small("sparse_attention", layers=1, window=1, stride=2, **WIDE)
    assert lag_dependence(model) == [True, False, True]


@pytest.mark.parametrize("fields", [{"window": LENGTH}, {"window": 1, "stride": 1}], ids=str)
def test_a_window_or_stride_that_covers_everything_changes_nothing(fields: dict) -> None:
    sparse = small("sparse_attention", **{"stride": 0, **fields, **WIDE})
    dense = small("sparse_attention", **{"window": 0, "stride": 0, **WIDE})
    copy_weights(dense, sparse, *dict(sparse.named_parameters()))
    assert_same_model(dense, sparse)


@pytest.mark.parametrize("parts", ["keys", "values", "both", "none"])
def test_one_layer_knows_the_order_from_the_distances(parts: str) -> None:
    model = small("relative_attention", layers=1, relative=parts, **WIDE)
    prefix = every_sequence(model.task)[0][:, :-1]
    moved = permute_tokens(prefix, torch.tensor([1, 0]), at=1)
    before, after = next_log_prob(model, prefix), next_log_prob(model, moved)
    if parts == "none":
        assert_close(after, before, CLOSE, "distribution after another order")
    else:
        assert (after - before).abs().max() > 1e-3


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


def test_default_fields_leave_no_trace_in_the_config() -> None:
    fields = to_dict(zoo.config("transformer_decoder"))
    assert not {"relative", "reach", "window", "stride"} & set(fields)
    assert to_dict(zoo.config("local_attention"))["window"] == 8


def test_a_stride_without_a_window_is_refused() -> None:
    with pytest.raises(UserError, match="stride=2 with window=0"):
        zoo.config("transformer_decoder", stride=2)


@pytest.mark.parametrize(
    "law",
    [
        density.law_causal,
        density.law_advance_equals_next_log_prob,
        learning.law_every_parameter_learns,
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"relative": "keys", "window": 2, "positions": "none"},
        {"relative": "values", "reach": 1, "norm": "pre"},
        {"relative": "both", "window": 2, "stride": 3, "attention": {"pick": "argmax"}},
        {"window": 3},
    ],
    ids=str,
)
def test_every_option_obeys_the_laws(fields: dict[str, Any], law: Law) -> None:
    law(tiny("transformer_decoder", length=5, **fields))
