"""Span corruption: distribution of spans, source and target sequences, scores."""

import math

import pytest
import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.laws.support import assert_close, log_prob
from lmzoo.models.span_corruption import (
    corrupt,
    sample_spans,
    sample_spans_around,
    span_targets,
)
from tests.models.equivalence import small
from tests.tiny import CLOSE, batch, every_sequence

N = 20_000
"""Number of sequences in which spans are counted."""


@pytest.fixture
def model() -> LanguageModel:
    return small("span_corruption")


def drawn(density: float, mean: float, count: int = 12) -> Tensor:
    u = torch.rand(N, count, generator=torch.Generator().manual_seed(0))
    return sample_spans(u, density, mean)


def is_within_five_sigma(actual: float, p: float, trials: int) -> bool:
    """Whether a share of successes is within five standard deviations of the binomial mean p."""
    return abs(actual - p) <= 5 * math.sqrt(p * (1 - p) / trials)


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)])
def test_spans_have_the_documented_frequencies(density: float, mean: float) -> None:
    masked = drawn(density, mean)
    for t in range(masked.shape[1]):
        assert is_within_five_sigma(masked[:, t].double().mean().item(), density, N), (
            f"hidden at {t}"
        )
    was, now = masked[:, :-1], masked[:, 1:]
    inside, outside = now[was], now[~was]
    assert is_within_five_sigma(inside.double().mean().item(), 1 - 1 / mean, len(inside)), (
        "length of spans"
    )
    begins = density / (mean * (1 - density))
    assert is_within_five_sigma(outside.double().mean().item(), begins, len(outside)), "beginnings"


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)])
def test_spans_around_a_token_follow_the_conditional_distribution(
    density: float, mean: float
) -> None:
    masked, u = (
        drawn(density, mean, 6),
        torch.rand(N, 6, generator=torch.Generator().manual_seed(1)),
    )
    for at in range(6):
        around = sample_spans_around(at, u, density, mean)
        assert around[:, at].all()
        covering = masked[masked[:, at]]
        for t in {*range(6)} - {at}:
            expected = covering[:, t].double().mean().item()
            # Both sides are estimates; this doubles the variance of the smaller sample.
            assert is_within_five_sigma(
                around[:, t].double().mean().item(), expected, len(covering) // 2
            ), (at, t)


def test_source_and_target_sequences_of_examples() -> None:
    """The example of `spans.py`, a sequence without hidden tokens, and one hidden completely."""
    tokens = torch.tensor([[1, 4, 5, 6, 7, 8], [1, 4, 5, 0, 0, 0], [1, 4, 5, 6, 0, 0]])
    lengths = torch.tensor([6, 3, 4])
    masked = torch.tensor([[0, 0, 1, 1, 0, 1], [0] * 6, [0, 1, 1, 1, 0, 0]], dtype=torch.bool)
    X, Y = 9, 10
    source, n = corrupt(tokens, lengths, masked, vocab=9)
    expected = [[1, 4, X, 7, Y, 0], [1, 4, 5, 0, 0, 0], [1, X, 0, 0, 0, 0]]
    assert (source.tolist(), n.tolist()) == (expected, [5, 3, 2])
    target, position = span_targets(tokens, masked, vocab=9)
    assert target.tolist() == [[X, 5, 6, Y, 8], [0] * 5, [X, 4, 5, 6, 0]]
    assert target.gather(1, position.clamp_min(0))[masked].equal(tokens[masked])


def masks(count: int, *hidden_at: int) -> Tensor:
    masked = torch.zeros(count, 5, dtype=torch.bool)
    masked[:, list(hidden_at)] = True
    return masked


@pytest.mark.parametrize("hidden_at", [(1,), (2, 3), (1, 3), (1, 2, 4), (1, 2, 3, 4)])
@torch.no_grad()
def test_probabilities_of_all_fillings_of_the_spans_sum_to_one(
    model: LanguageModel, hidden_at: tuple[int, ...]
) -> None:
    """For every choice of the visible tokens."""
    tokens, lengths = every_sequence(model.task)
    masked = masks(len(tokens), *hidden_at)
    scores = model.eval().score_hidden(tokens, lengths, masked)
    assert (scores[~masked[:, 1:]] == 0).all()
    assert (scores[masked[:, 1:]] < 0).all()
    rest = tokens.masked_fill(masked, 0)
    for kept in rest.unique(dim=0):
        total = scores[(rest == kept).all(1)].double().sum(1).exp().sum()
        assert_close(
            total, torch.ones_like(total), CLOSE, f"total of all fillings of {kept.tolist()}"
        )


@torch.no_grad()
def test_evaluation_shares_spans_and_training_draws_new_ones() -> None:
    model = small("span_corruption", samples=3)
    tokens, lengths = batch(model.task)
    recorded: list[Tensor] = []
    score_hidden = model.score_hidden

    def record(tokens: Tensor, lengths: Tensor, masked: Tensor) -> Tensor:
        recorded.append(masked)
        return score_hidden(tokens, lengths, masked)

    model.score_hidden = record
    actual = log_prob(model, tokens, lengths)
    real = torch.arange(tokens.shape[1]) < lengths[:, None]
    assert all(masked.equal(masked[0] & real) for masked in recorded), (
        "sequences draw for themselves"
    )
    assert not any(masked[:, 0].any() for masked in recorded), "<start> is hidden"
    for t in range(1, tokens.shape[1]):
        drawn = recorded[3 * t - 3 : 3 * t]
        assert all(masked[0, t] for masked in drawn), f"token {t} is not hidden"
        per_draw = torch.stack(
            [score_hidden(tokens, lengths, masked)[:, t - 1] for masked in drawn]
        )
        assert_close(actual[:, t], per_draw.mean(0), CLOSE, f"mean over the draws at {t}")
    assert len(recorded) == 3 * (tokens.shape[1] - 1)
    recorded.clear()
    for noise in (0, 1):
        log_prob(model, tokens, lengths, training=True, noise=noise)
    assert len(recorded) == 2
    assert not recorded[0].equal(recorded[1])
