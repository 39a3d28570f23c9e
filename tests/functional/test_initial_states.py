"""The mixture over initial states, on random scores and in the recurrent model."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.initial_states import start_posterior
from lmzoo.laws.tiny import log_prob
from tests.tiny import (
    assert_equal_double,
    assert_equal_single,
    batch,
    every_sequence,
    quick,
    tiny,
)


def mixture(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return log-weights (W,) and token scores (W, B, T) under each initial state."""
    generator = torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    weights = torch.randn(count, **options).log_softmax(0)
    return weights, -3 * torch.rand(count, 2, 6, **options)


@quick
@given(st.integers(2, 5), st.integers(0, 99))
def test_the_posterior_starts_at_the_prior(count, seed):
    weights, scores = mixture(count, seed)
    posterior = start_posterior(weights, scores)
    assert_equal_double(posterior.exp().sum(0), torch.ones_like(scores[0]))
    assert_equal_double(posterior[..., 0], weights[:, None].expand(-1, 2))


@quick
@given(st.integers(2, 5), st.integers(0, 99))
def test_the_posterior_depends_on_the_past(count, seed):
    weights, scores = mixture(count, seed)
    before = start_posterior(weights, scores)
    scores[..., 3] -= torch.rand(count, 1)
    after = start_posterior(weights, scores)
    assert after[..., :4].equal(before[..., :4])
    assert not after[..., 4:].allclose(before[..., 4:])


@pytest.mark.parametrize("count", [1, 3])
def test_starts_of_ones_equal_the_model_without_learned_starts(count):
    plain = tiny("recurrent_lm", cell="lstm")
    model = tiny("recurrent_lm", cell="lstm", starts=count)
    tokens, lengths = batch(plain.task)
    expected = log_prob(plain, tokens, lengths)
    assert not log_prob(model, tokens, lengths).allclose(expected)
    with torch.no_grad():
        model.starts.vectors.fill_(1)  # the published constant state
    assert_equal_single(log_prob(model, tokens, lengths), expected)


def test_the_sequence_log_prob_is_the_mixture_over_single_starts():
    model = tiny("recurrent_lm", cell="gru", starts=3)
    tokens, lengths = every_sequence(model.task)
    single = tiny("recurrent_lm", cell="gru", starts=1)
    totals = []
    shared = {k: v for k, v in model.state_dict().items() if not k.startswith("starts")}
    single.load_state_dict(shared, strict=False)
    for vector in model.starts.vectors:
        with torch.no_grad():
            single.starts.vectors.copy_(vector[None])
        totals.append(log_prob(single, tokens, lengths).sum(1))
    weights = model.starts.log_weights()[:, None]
    expected = torch.logsumexp(weights + torch.stack(totals), dim=0)
    found = log_prob(model, tokens, lengths).sum(1)
    assert_equal_single(found, expected)


def test_starts_of_bernoulli_states_are_in_the_unit_interval():
    model = tiny("recurrent_lm", cell={"name": "mgru", "mutations": [4]}, starts=2)
    with torch.no_grad():
        model.starts.vectors.copy_(torch.linspace(-9, 9, 8).reshape(2, 4))
    starts = model._start_vectors()
    assert starts.min() > 0
    assert starts.max() < 1
