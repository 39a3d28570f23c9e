"""Span corruption: what is hidden, how it is told, and that it is restored by probability."""

import math

import pytest
import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.models.seq2seq.spans import corrupt, span_targets, sample_spans, sample_spans_around
from tests.laws.density import law_next_is_a_distribution
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.limits import row
from tests.tiny import CLOSE, SAME, batch, every_sequence
from tests.user_errors import raises_user_error

N = 20_000
"""Sequences whose spans are counted."""


@pytest.fixture
def model() -> LanguageModel:
    return row("span_corruption")


def drawn(density: float, mean: float, count: int = 12) -> Tensor:
    u = torch.rand(N, count, generator=torch.Generator().manual_seed(0))
    return sample_spans(u, density, mean)


def within(found: float, p: float, trials: int) -> bool:
    """A count of successes as a share, within five standard deviations of the binomial."""
    return abs(found - p) <= 5 * math.sqrt(p * (1 - p) / trials)


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)])
def test_spans_are_counted_within_binomial_bounds(density: float, mean: float) -> None:
    masked = drawn(density, mean)
    for t in range(masked.shape[1]):
        assert within(masked[:, t].double().mean().item(), density, N), f"hidden at {t}"
    was, now = masked[:, :-1], masked[:, 1:]
    inside, outside = now[was], now[~was]
    assert within(inside.double().mean().item(), 1 - 1 / mean, len(inside)), "length of spans"
    begins = density / (mean * (1 - density))
    assert within(outside.double().mean().item(), begins, len(outside)), "beginnings"


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.0)])
def test_spans_around_a_token_are_those_that_happen_to_cover_it(
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
            wanted = covering[:, t].double().mean().item()
            # Both are estimates: twice the variance of the smaller sample is enough.
            assert within(around[:, t].double().mean().item(), wanted, len(covering) // 2), (at, t)


def test_what_is_read_and_what_is_said() -> None:
    """The example of the file's head, beside a row with nothing hidden and one hidden whole."""
    tokens = torch.tensor([[1, 4, 5, 6, 7, 8], [1, 4, 5, 0, 0, 0], [1, 4, 5, 6, 0, 0]])
    lengths = torch.tensor([6, 3, 4])
    masked = torch.tensor([[0, 0, 1, 1, 0, 1], [0] * 6, [0, 1, 1, 1, 0, 0]], dtype=torch.bool)
    X, Y = 9, 10
    read, n = corrupt(tokens, lengths, masked, vocab=9)
    expected = [[1, 4, X, 7, Y, 0], [1, 4, 5, 0, 0, 0], [1, X, 0, 0, 0, 0]]
    assert (read.tolist(), n.tolist()) == (expected, [5, 3, 2])
    said, place = span_targets(tokens, masked, vocab=9)
    assert said.tolist() == [[X, 5, 6, Y, 8], [0] * 5, [X, 4, 5, 6, 0]]
    assert said.gather(1, place.clamp_min(0))[masked].equal(tokens[masked])


def masks(count: int, *hidden_at: int) -> Tensor:
    masked = torch.zeros(count, 5, dtype=torch.bool)
    masked[:, list(hidden_at)] = True
    return masked


@pytest.mark.parametrize("hidden_at", [(1,), (2, 3), (1, 3), (1, 2, 4), (1, 2, 3, 4)])
@torch.no_grad()
def test_all_fillings_of_the_spans_sum_to_one(
    model: LanguageModel, hidden_at: tuple[int, ...]
) -> None:
    """For each way that the rest of the sequence may stand."""
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
def test_a_hidden_token_sees_the_rest_and_the_hidden_ones_before_it(model: LanguageModel) -> None:
    tokens, lengths = every_sequence(model.task)
    masked = masks(len(tokens), 2, 4)
    before = model.eval().score_hidden(tokens, lengths, masked)
    for u, moved in ((1, [2, 4]), (2, [4]), (3, [2, 4]), (4, [])):
        changed = tokens.clone()
        changed[:, u] = (tokens[:, u] + 1) % model.task.vocab
        after = model.score_hidden(changed, lengths, masked)
        apart = (after - before).abs().amax(0)
        for t in {2, 4} - {u}:
            assert (apart[t - 1] > 1e-4) == (t in moved), f"token {t} when {u} changes"
            assert apart[t - 1] > 1e-4 or apart[t - 1] <= SAME


@torch.no_grad()
def test_evaluation_hides_every_token_in_spans_all_share_and_training_draws_afresh() -> None:
    model = row("span_corruption", samples=3)
    tokens, lengths = batch(model.task)
    seen: list[Tensor] = []
    score_hidden = model.score_hidden

    def noted(tokens: Tensor, lengths: Tensor, masked: Tensor) -> Tensor:
        seen.append(masked)
        return score_hidden(tokens, lengths, masked)

    model.score_hidden = noted
    found = log_prob(model, tokens, lengths)
    real = torch.arange(tokens.shape[1]) < lengths[:, None]
    assert all(masked.equal(masked[0] & real) for masked in seen), "sequences draw for themselves"
    assert not any(masked[:, 0].any() for masked in seen), "<start> is hidden"
    for t in range(1, tokens.shape[1]):
        drawn = seen[3 * t - 3 : 3 * t]
        assert all(masked[0, t] for masked in drawn), f"token {t} is not hidden"
        each = torch.stack([score_hidden(tokens, lengths, masked)[:, t - 1] for masked in drawn])
        assert_close(found[:, t], each.mean(0), CLOSE, f"mean over the draws at {t}")
    assert len(seen) == 3 * (tokens.shape[1] - 1)
    seen.clear()
    for noise in (0, 1):
        log_prob(model, tokens, lengths, training=True, noise=noise)
    assert len(seen) == 2
    assert not seen[0].equal(seen[1])


@torch.no_grad()
def test_a_score_is_in_nats_per_hidden_token_in_evaluation_and_in_training() -> None:
    """Where nothing is told apart, each hidden token costs log V, however much is hidden."""
    for density in (0.15, 0.5):
        model = row("span_corruption", density=density)
        model.embedding.weight.zero_()
        tokens, lengths = batch(model.task, count=4000)
        uniform = -math.log(model.task.vocab)
        scored = torch.arange(1, tokens.shape[1]) < lengths[:, None]
        found = log_prob(model, tokens, lengths)[:, 1:][scored]
        assert_close(found, torch.full_like(found, uniform), CLOSE, "a hidden token")
        raised = log_prob(model, tokens, lengths, training=True)[:, 1:][scored]
        assert raised.mean().item() == pytest.approx(uniform, rel=0.1)


@torch.no_grad()
def test_decoding_fills_a_span_behind_the_prefix(model: LanguageModel) -> None:
    law_next_is_a_distribution(model)
    tokens, _ = every_sequence(model.task)
    n = torch.full((len(tokens),), 3)
    scores = model.score_hidden(tokens[:, :3], n, masks(len(tokens), 2)[:, :3])
    dense = next_log_prob(model, tokens[:, :2])
    assert_close(
        dense.gather(1, tokens[:, 2:3]), scores[:, 1:], CLOSE, "the token behind the prefix"
    )


def test_more_tokens_than_it_was_made_for_are_refused(model: LanguageModel) -> None:
    tokens, lengths = torch.ones(1, 6, dtype=torch.int64), torch.tensor([6])
    with raises_user_error("span_corruption", "5 tokens", "got 6"):
        model.log_prob(tokens, lengths)
    with raises_user_error("span_corruption", "5 tokens", "got 6"):
        model.next_log_prob(tokens[:, :5])
