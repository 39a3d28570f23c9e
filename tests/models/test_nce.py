"""Noise-contrastive estimation and negative sampling: objective, optimum and score."""

import math

import pytest
import torch
from torch import Tensor

from lmzoo.contract import START, LanguageModel
from lmzoo.functional.noise_contrastive import expected_contrastive_objective
from lmzoo.functional.token_scores import scored_mask
from tests.laws.support import assert_close, log_prob
from tests.tiny import CLOSE, batch, tiny

VOCAB, COUNT = 5, 200


def bigrams(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return sequences of a Markov chain and its transition matrix."""
    generator = torch.Generator().manual_seed(0)
    table = torch.softmax(1.5 * torch.randn(VOCAB, VOCAB, generator=generator), -1)
    tokens = torch.full((count, 4), START)
    for t in range(1, 4):
        tokens[:, t] = torch.multinomial(table[tokens[:, t - 1]], 1, generator=generator)[:, 0]
    return tokens, torch.full((count,), 4), table


def trained(name: str, steps: int, **fields: object) -> LanguageModel:
    model = tiny(name, vocab=VOCAB, width=16, **fields).train()
    tokens, lengths, _ = bigrams(COUNT)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(steps):
            optimiser.zero_grad()
            (-model.objective(tokens, lengths).mean()).backward()
            optimiser.step()
    return model.eval()


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


def test_scores_are_normalised() -> None:
    model = tiny("nce", vocab=VOCAB)
    tokens, lengths = batch(model.task)
    before = log_prob(model, tokens, lengths)
    with torch.no_grad():
        model.bias += 3.0  # adds 3 to every log Z and changes no probability
        moved = model.log_normalisers(tokens, lengths)
        assert_close(log_prob(model, tokens, lengths), before, CLOSE, "scores")
        model.bias -= 3.0
        difference = moved - model.log_normalisers(tokens, lengths)
    assert_close(difference, 3.0 * scored_mask(tokens, lengths), CLOSE, "log Z")


@pytest.mark.parametrize("learned", [False, True])
def test_initial_normaliser_is_about_one(*, learned: bool) -> None:
    model = tiny("nce", vocab=50, learned_log_z=learned, width=32, embedding_std=0.01)
    with torch.no_grad():
        log_z = model.log_normalisers(*batch(model.task))
    assert log_z.abs().max() < 0.1
    assert (model.log_z is not None) == learned


@pytest.mark.parametrize("learned", [False, True])
def test_nce_training_normalises_the_model(*, learned: bool) -> None:
    model = trained("nce", 60, negatives=10, learned_log_z=learned)
    tokens, lengths, table = bigrams(COUNT)
    with torch.no_grad():
        log_z = model.log_normalisers(tokens, lengths)[:, 1:]
        actual = model.log_prob(tokens, lengths)[:, 1:].mean()
    assert log_z.mean().abs() < 0.1
    assert log_z.std() < 0.2
    ideal = table[tokens[:, :-1], tokens[:, 1:]].log().mean()
    assert actual == pytest.approx(ideal.item(), abs=0.06)


def test_negative_sampling_does_not_normalise_and_needs_uniform_noise() -> None:
    """At the optimum e^c = p̃ / (k q), so the model equals p̃ only for uniform q."""
    tokens, lengths, table = bigrams(COUNT)
    ideal = table[tokens[:, :-1], tokens[:, 1:]].log().mean().item()
    loss = {}
    for exponent in (0.0, 1.0):
        model = trained("negative_sampling", 60, negatives=10, noise_exponent=exponent)
        with torch.no_grad():
            loss[exponent] = -model.log_prob(tokens, lengths)[:, 1:].mean().item()
            log_z = model.log_normalisers(tokens, lengths)[:, 1:].mean().item()
        if exponent == 0.0:
            assert log_z == pytest.approx(math.log(VOCAB / 10), abs=0.1)
    assert loss[0.0] == pytest.approx(-ideal, abs=0.06)
    assert loss[1.0] > loss[0.0] + 0.05


def test_only_training_counts_noise_tokens_and_only_scored_ones() -> None:
    model = tiny("nce", vocab=VOCAB)
    tokens, lengths = batch(model.task)
    model.eval().objective(tokens, lengths)
    assert not model.noise.counts.any()
    model.train().objective(tokens, lengths)
    expected = torch.bincount(tokens[scored_mask(tokens, lengths)], minlength=VOCAB)
    assert model.noise.counts.equal(expected)
