"""The hidden Markov model equals the sum over all paths of hidden states."""

import torch

from lmzoo.laws.tiny import assert_close, log_prob
from tests.cases import parametrize
from tests.models.equivalence import small
from tests.tiny import FINE, assert_equal_double, every_sequence


def paths(model, tokens):
    """Return all paths z_1..z_n (P, n) and the probability of each with the tokens (P, B)."""
    start = model.start().exp()
    step = model.log_transition().exp()
    table = model.words.log_prob_table(model.table)
    words = table.exp()
    count = len(start)
    steps = tokens.shape[1] - 1
    states = torch.arange(count)
    choices = [states] * steps
    every = torch.cartesian_prod(*choices).reshape(-1, steps)
    first = every[:, 0]
    # A path has one probability for each sequence of tokens.
    total = start[first][:, None]
    for t in range(steps):
        state = every[:, t]
        if t:
            before = every[:, t - 1]
            moved = step[before, state]
            total = total * moved[:, None]
        token = tokens[:, t + 1]
        total = total * words[state][:, token]
    return every, total


@torch.no_grad()
def test_scores_are_the_sum_over_all_paths():
    model = small("hmm").double()
    tokens, lengths = every_sequence(model.task)
    _, joint = paths(model, tokens)
    scores = log_prob(model, tokens, lengths).sum(1)
    expected = joint.sum(0).log()
    assert_equal_double(scores, expected)


@torch.no_grad()
@parametrize("length", [2, 4, 5])
def test_posteriors_are_those_of_the_paths(length):
    """The filter uses the tokens up to t."""
    model = small("hmm").double()
    tokens, _ = every_sequence(model.task)
    lengths = torch.full((len(tokens),), length)
    filtered = model.posterior(tokens, lengths)
    for t in range(1, length):
        prefix = tokens[:, : t + 1]
        every, joint = paths(model, prefix)
        last = every[:, t - 1]
        by_state = []
        for state in range(3):
            ending = joint[last == state]
            by_state.append(ending.sum(0))
        mass = torch.stack(by_state, 1)
        expected = mass / mass.sum(1, keepdim=True)
        actual = filtered[:, :, t - 1]
        assert_close(actual, expected, FINE, f"posterior of z_{t}")


@torch.no_grad()
def test_long_sequences_do_not_underflow():
    model = small("hmm")
    # The probability of so many tokens is far below the smallest number.
    tokens = torch.randint(3, (2, 3000))
    lengths = torch.tensor([3000, 3000])
    scores = model.log_prob(tokens, lengths)
    exact = model.double().log_prob(tokens, lengths)
    actual = scores.double()
    assert_close(actual, exact, 2e-5, "scores")
    scored = exact[:, 1:]
    assert scored.max() < 0
