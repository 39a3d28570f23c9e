"""The hidden Markov model equals the sum over all paths of hidden states."""

import itertools

import pytest
import torch
from torch import Tensor

from lmzoo.laws.tiny import assert_close, log_prob
from tests.models.equivalence import small
from tests.tiny import FINE, assert_equal_double, every_sequence


def paths(model: torch.nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return all paths z_1..z_n (P, n) and the probability of each with the tokens (P, B)."""
    start = model.start().exp()
    step = model.log_transition().exp()
    words = model.words.log_prob_table(model.table).exp()
    count = len(start)
    steps = tokens.shape[1] - 1
    every = torch.tensor(list(itertools.product(range(count), repeat=steps)))
    total = start[every[:, 0]][:, None]
    for t in range(steps):
        state = every[:, t]
        if t:
            before = every[:, t - 1]
            total = total * step[before, state][:, None]
        total = total * words[state][:, tokens[:, t + 1]]
    return every, total


@torch.no_grad()
def test_scores_are_the_sum_over_all_paths():
    model = small("hmm").double()
    tokens, lengths = every_sequence(model.task)
    _, joint = paths(model, tokens)
    scores = log_prob(model, tokens, lengths).sum(1)
    assert_equal_double(scores, joint.sum(0).log())


@torch.no_grad()
@pytest.mark.parametrize("length", [2, 4, 5])
def test_posteriors_are_those_of_the_paths(length):
    """The filter uses the tokens up to t."""
    model = small("hmm").double()
    tokens, _ = every_sequence(model.task)
    filtered = model.posterior(tokens, torch.full((len(tokens),), length))
    for t in range(1, length):
        every, joint = paths(model, tokens[:, : t + 1])
        last = every[:, t - 1]
        by_state = torch.stack([joint[last == k].sum(0) for k in range(3)], 1)
        expected = by_state / by_state.sum(1, keepdim=True)
        assert_close(filtered[:, :, t - 1], expected, FINE, f"posterior of z_{t}")


@torch.no_grad()
def test_long_sequences_do_not_underflow():
    model = small("hmm")
    # The probability of so many tokens is far below the smallest number.
    tokens = torch.randint(3, (2, 3000), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([3000, 3000])
    scores = model.log_prob(tokens, lengths)
    exact = model.double().log_prob(tokens, lengths)
    assert_close(scores.double(), exact, 2e-5, "scores")
    assert exact[:, 1:].max() < 0
