"""Masked language model: masking, objective, score. Contrastive training: objective and optimum."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws.support import assert_close, log_prob
from lmzoo.models.objective import contrastive_objective, mask_tokens
from tests.models.equivalence import small
from tests.tiny import CLOSE, FINE, batch, tiny

VOCAB, COUNT = 5, 200
"""Of the contrastive models."""


def masked(**fields: Any) -> Any:
    return small("masked_lm", **fields)


def is_within_five_sigma(count: int, trials: int, p: float) -> bool:
    """Whether a count is within five standard deviations of the mean of Binomial(trials, p)."""
    return abs(count - trials * p) < 5 * math.sqrt(trials * p * (1 - p))


def test_tokens_are_selected_hidden_and_swapped_with_the_given_probabilities() -> None:
    vocab = 1000
    tokens = torch.randint(vocab, (400, 100), generator=torch.Generator().manual_seed(0))
    words = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        actual = mask_tokens(tokens, words, vocab, select=0.15, hide=0.8, swap=0.1)
    assert not (actual.predicted & ~words).any()
    assert not (actual.hidden & ~actual.predicted).any()
    changed = actual.tokens != tokens
    assert not (changed & (actual.hidden | ~actual.predicted)).any()
    trials = int(actual.predicted.sum())
    assert is_within_five_sigma(trials, int(words.sum()), 0.15)
    assert is_within_five_sigma(int(actual.hidden.sum()), trials, 0.8)
    # A random token equals the original one with probability 1/vocab.
    assert is_within_five_sigma(int(changed.sum()), trials, 0.1 * (1 - 1 / vocab))
    swapped = actual.tokens[changed]
    assert is_within_five_sigma(int((swapped < vocab // 2).sum()), len(swapped), 0.5)


@pytest.mark.parametrize(("hide", "swap"), [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0)])
def test_objective_is_the_score_of_the_corrupted_sentence(hide: float, swap: float) -> None:
    """All tokens are selected and all get the same treatment."""
    model = masked(select=1.0, hide=hide, swap=swap, dropout=0.0).eval()
    tokens, lengths = batch(model.task)
    mask = scored_mask(tokens, lengths)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        actual = model.objective(tokens, lengths)
        torch.manual_seed(3)
        how = mask_tokens(tokens, mask, model.task.vocab, select=1.0, hide=hide, swap=swap)
        y = model.encode(how.tokens, lengths, how.hidden)
        dense = model.emission.dense(y, model.embedding.weight)
    expected = dense.gather(-1, tokens[..., None])[..., 0] * mask
    assert_close(actual, expected, CLOSE, "objective")
    assert how.hidden.equal(mask & (hide == 1.0))
    assert (how.tokens == tokens).all() == (swap == 0.0)


def test_objective_equals_the_score_in_expectation() -> None:
    """Without attention the prediction of a token does not depend on the other tokens."""
    draws = 1500
    model = masked(select=0.25, hide=1.0, swap=0.0, dropout=0.0, layers=1).eval()
    with torch.no_grad():  # switch attention off
        model.blocks[0].attention.output.weight.zero_()
    tokens, lengths = batch(model.task, count=2)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        many = model.objective(tokens.repeat(draws, 1), lengths.repeat(draws))
    many = many.unflatten(0, (draws, -1))
    difference = (many.mean(0) - log_prob(model, tokens, lengths)).abs()
    assert (difference <= 5 * many.std(0) / draws**0.5 + 1e-6).all()


@pytest.mark.parametrize("emission", ["vector", "mixture"])
def test_score_hides_one_token_at_a_time(emission: str) -> None:
    model = masked(emission=emission).eval()
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    t = torch.arange(model.task.length)
    for u in range(1, model.task.length):
        with torch.no_grad():
            y = model.encode(tokens, lengths, (t == u).expand_as(tokens))
            dense = model.emission.dense(y[:, u], model.embedding.weight)
        expected = dense.gather(1, tokens[:, u : u + 1])[:, 0]
        mask = u < lengths
        assert_close(scores[mask, u], expected[mask], CLOSE, f"score at {u}")
        assert_close(dense.exp().sum(1), torch.ones(len(tokens)), CLOSE, "total")


def test_shares_that_exceed_one_are_refused() -> None:
    with pytest.raises(UserError, match=r"hide=0\.8 and swap=0\.3 exceed 1"):
        zoo.config("masked_lm", swap=0.3)


def expected_contrastive_objective(scores: Tensor, data: Tensor, noise: Tensor, k: int) -> Tensor:
    """Return Σ_w [ p̃(w) log σ(s_w) + k q(w) log σ(−s_w) ]."""
    return (data * logsigmoid(scores) + k * noise * logsigmoid(-scores)).sum(-1)


@pytest.mark.parametrize("k", [1, 2])
def test_the_mean_over_all_draws_is_the_published_sum_with_its_optimum_at_the_data(k: int) -> None:
    """Enumerate all draws of a data word and k noise words with their probabilities."""
    generator = torch.Generator().manual_seed(0)
    data, noise = torch.softmax(torch.randn(2, 7, generator=generator).double(), -1)
    u = (1.7 * torch.softmax(torch.randn(7, generator=generator).double(), -1)).requires_grad_()
    kq, words = k * noise, torch.cartesian_prod(*[torch.arange(7)] * (k + 1))
    weights, s = data[words[:, 0]] * noise[words[:, 1:]].prod(1), (u / kq).log()
    mean = (weights * contrastive_objective(s[words[:, 0]], s[words[:, 1:]])).sum()
    expected = (data * (u / (kq + u)).log() + kq * (kq / (kq + u)).log()).sum()
    assert_close(mean.detach(), expected.detach(), FINE, "J")
    assert_close(
        mean.detach(), expected_contrastive_objective(s, data, noise, k).detach(), FINE, ""
    )
    (gradient,) = torch.autograd.grad(mean, u)
    assert_close(gradient * u.detach(), (kq / (kq + u) * (data - u)).detach(), FINE, "gradient")


@pytest.mark.parametrize("name", ["nce", "negative_sampling"])
def test_sampled_objective_has_the_exact_expectation(name: str) -> None:
    draws, k = 1500, 3
    model = tiny(name, vocab=VOCAB, negatives=k).eval()
    tokens, lengths = batch(model.task, count=2)
    model.noise.update(torch.tensor([0, 1, 1, 2, 2, 2]), torch.ones(6, dtype=torch.bool))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        many = model.objective(tokens.repeat(draws, 1), lengths.repeat(draws))
        q = model.noise.log_q(torch.zeros(())).exp()
        scores = model.unnormalised_scores(tokens[:, :-1])
        if name == "nce":
            scores = scores - (k * q).log()
        data = torch.nn.functional.one_hot(tokens[:, 1:], VOCAB).to(scores)
        exact = (
            expected_contrastive_objective(scores, data, q, k) * scored_mask(tokens, lengths)[:, 1:]
        )
    many = many.unflatten(0, (draws, -1))[..., 1:]
    difference = (many.mean(0) - exact).abs()
    assert (difference <= 5 * many.std(0) / draws**0.5 + 1e-6).all()
    assert (many.std(0)[exact != 0] > 0).all()


def test_only_training_counts_noise_tokens_and_only_scored_ones() -> None:
    model = tiny("nce", vocab=VOCAB)
    tokens, lengths = batch(model.task)
    model.eval().objective(tokens, lengths)
    assert not model.noise.counts.any()
    model.train().objective(tokens, lengths)
    expected = torch.bincount(tokens[scored_mask(tokens, lengths)], minlength=VOCAB)
    assert model.noise.counts.equal(expected)
