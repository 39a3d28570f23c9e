"""The hidden Markov model equals the sum over all paths of hidden states."""

import itertools

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
        if t:
            total = total * step[every[:, t - 1], every[:, t]][:, None]
        total = total * words[every[:, t]][:, tokens[:, t + 1]]
    return every, total


@torch.no_grad()
def test_scores_are_the_sum_over_all_paths():
    model = small("hmm").double()
    tokens, lengths = every_sequence(model.task)
    expected = paths(model, tokens)[1].sum(0).log()
    assert_equal_double(log_prob(model, tokens, lengths).sum(1), expected)


@torch.no_grad()
def test_posteriors_are_those_of_the_paths():
    """The filter uses the tokens up to t."""
    model = small("hmm").double()
    tokens, _ = every_sequence(model.task)
    for length in (2, 4, 5):
        lengths = torch.full((len(tokens),), length)
        filtered = model.posterior(tokens, lengths)
        for t in range(1, length):
            every, joint = paths(model, tokens[:, : t + 1])
            by_state = torch.stack([joint[every[:, t - 1] == k].sum(0) for k in range(3)], 1)
            expected = by_state / by_state.sum(1, keepdim=True)
            assert_close(filtered[:, :, t - 1], expected, FINE, f"posterior of z_{t}")


@torch.no_grad()
def test_long_sequences_do_not_underflow():
    model = small("hmm")
    tokens = torch.randint(3, (2, 3000), generator=torch.Generator().manual_seed(0))
    scores = model.log_prob(tokens, torch.tensor([3000, 3000]))
    exact = model.double().log_prob(tokens, torch.tensor([3000, 3000]))
    assert_close(scores.double(), exact, 2e-5, "scores")
    assert exact[:, 1:].max() < 0
