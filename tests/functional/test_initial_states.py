"""The mixture over initial states, on random scores and in the recurrent model."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.initial_states import start_posterior
from lmzoo.laws.tiny import log_prob
from tests.cases import parametrize
from tests.tiny import (
    assert_equal_double,
    assert_equal_single,
    batch,
    every_sequence,
    quick,
    tiny,
)


def mixture(count, seed):
    """Return log-weights (W,) and token scores (W, B, T) under each initial state."""
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    weights = torch.randn(count, **options).log_softmax(0)
    scores = -3 * torch.rand(count, 2, 6, **options)
    return weights, scores


COUNTS = st.integers(2, 5)
SEEDS = st.integers(0, 99)


@quick
@given(COUNTS, SEEDS)
def test_the_posterior_starts_at_the_prior(count, seed):
    weights, scores = mixture(count, seed)
    posterior = start_posterior(weights, scores)
    actual = posterior.exp().sum(0)
    expected = torch.ones_like(scores[0])
    assert_equal_double(actual, expected)
    actual = posterior[..., 0]
    expected = weights[:, None].expand(-1, 2)
    assert_equal_double(actual, expected)


@quick
@given(COUNTS, SEEDS)
def test_the_posterior_depends_on_the_past(count, seed):
    weights, scores = mixture(count, seed)
    before = start_posterior(weights, scores)
    # Each state finds the fourth token less probable by another amount.
    scores[..., 3] -= torch.rand(count, 1)
    after = start_posterior(weights, scores)
    same = after[..., :4]
    assert same.equal(before[..., :4])
    changed = after[..., 4:]
    assert not changed.allclose(before[..., 4:])


@parametrize("count", [1, 3])
def test_starts_of_ones_equal_the_model_without_learned_starts(count):
    plain = tiny("recurrent_lm", cell="lstm")
    model = tiny("recurrent_lm", cell="lstm", starts=count)
    tokens, lengths = batch(plain.task)
    expected = log_prob(plain, tokens, lengths)
    learned = log_prob(model, tokens, lengths)
    assert not learned.allclose(expected)
    with torch.no_grad():
        model.starts.vectors.fill_(1)  # the published constant state
    actual = log_prob(model, tokens, lengths)
    assert_equal_single(actual, expected)


def test_the_sequence_log_prob_is_the_mixture_over_single_starts():
    model = tiny("recurrent_lm", cell="gru", starts=3)
    tokens, lengths = every_sequence(model.task)
    # The same model with one start at a time.
    single = tiny("recurrent_lm", cell="gru", starts=1)
    totals = []
    shared = model.state_dict()
    for name in model.state_dict():
        if name.startswith("starts"):
            del shared[name]
    single.load_state_dict(shared, strict=False)
    for vector in model.starts.vectors:
        with torch.no_grad():
            single.starts.vectors.copy_(vector[None])
        scores = log_prob(single, tokens, lengths)
        totals.append(scores.sum(1))
    weights = model.starts.log_weights()[:, None]
    joint = weights + torch.stack(totals)
    expected = torch.logsumexp(joint, dim=0)
    found = log_prob(model, tokens, lengths).sum(1)
    assert_equal_single(found, expected)


def test_starts_of_bernoulli_states_are_in_the_unit_interval():
    cell = {"name": "mgru", "mutations": [4]}
    model = tiny("recurrent_lm", cell=cell, starts=2)
    # Far on both sides of zero.
    wide = torch.linspace(-9, 9, 8)
    with torch.no_grad():
        model.starts.vectors.copy_(wide.view(2, 4))
    starts = model._start_vectors()
    assert starts.min() > 0
    assert starts.max() < 1
