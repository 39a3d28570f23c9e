"""VAEs: what the encoder reads, bounds by sums over the latent, samples, stepwise decoding."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.contract import MODELS, START
from lmzoo.laws import Law, density
from lmzoo.laws.density import law_advance_equals_next_log_prob
from lmzoo.laws.every_model import law_state_has_the_declared_size
from lmzoo.laws.support import assert_close, log_prob, next_log_prob
from lmzoo.models.gaussian_vae import GaussianVAE
from lmzoo.models.vae import VAE
from tests.models.equivalence import set_weights, small
from tests.models.exact_latents import discrete_parts, gaussian_elbo, gaussian_log_p
from tests.tiny import CLOSE, batch, every_sequence, tiny


@torch.no_grad()
def test_encoder_reads_every_scored_token_and_nothing_else() -> None:
    model = small("gru_vae")
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    before = model.encode_sentence(tokens, lengths)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (model.encode_sentence(changed, lengths) - before).abs().amax(1)
        assert ((moved > 1e-4) == (1 <= t < model.task.length - 1)).all()


@torch.no_grad()
@pytest.mark.parametrize("name", ["gru_vae", "gru_ternary_vae", "gru_autoencoder"])
@pytest.mark.parametrize("mutations", [[4], [4, 6]], ids=str)
def test_bernoulli_states_are_probabilities_for_any_latent(name: str, mutations: list[int]) -> None:
    """Any vector z is mapped to a valid state. A centred cell outputs h - ½."""
    model = tiny(name, norm="none", cell={"name": "mgru", "mutations": mutations}).eval()
    tokens, _ = batch(model.task)
    for z in (-3.0, 0.0, 1.0, 3.0):
        h = model.outputs(tokens, torch.full((1, len(tokens), 4), z))
        h = h + 0.5 if 6 in mutations else h
        assert h.min() >= 0
        assert h.max() <= 1
    with_memory = tiny(name, norm="none", cell="gru").eval()
    start = torch.full((1, len(tokens), 4), 3.0)
    assert with_memory.outputs(tokens, start).max() > 1  # states of other cells are unbounded


EXACT = ["gru_vae", "rnn_vae", "gru_covariance_vae", "gru_ternary_vae", "gru_bernoulli_vae"]
TWO = {"width": 2, "norm": "none"}
"""Two channels and no normaliser: the quadrature needs smooth functions."""
COPIES = 3000
"""Copies of one sequence in a batch; each has an independent draw."""


def vae(name: str, **fields: object) -> VAE:
    """Return a small VAE whose prior has correlated channels, or bits that are often on."""
    model = small(name, **fields)
    if name == "gru_covariance_vae":
        set_weights(model, {"z.prior_upper": 0.8})
    if name == "gru_bernoulli_vae":
        set_weights(model, {"z.prior_logits": 2.0})
    return model


def exact(model: VAE, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ELBO and log P."""
    if isinstance(model, GaussianVAE):
        return gaussian_elbo(model, tokens, lengths), gaussian_log_p(model, tokens, lengths)
    log_q, log_w = discrete_parts(model, tokens, lengths)
    return (log_q.exp() * log_w).sum(0), torch.logsumexp(log_q + log_w, dim=0)


def copies(model: VAE) -> tuple[Tensor, Tensor]:
    """Return many copies of one sequence that is shorter than the padded length."""
    tokens, _ = batch(model.task)
    return tokens[:1].expand(COPIES, -1), torch.full((COPIES,), model.task.length - 1)


def mean_and_error(draws: Tensor) -> tuple[Tensor, Tensor]:
    return draws.mean(), draws.std() / len(draws) ** 0.5


@pytest.mark.parametrize("name", EXACT)
@torch.no_grad()
def test_exact_likelihood_sums_to_one_and_exceeds_the_elbo(name: str) -> None:
    model = vae(name, **TWO)
    elbo, log_p = exact(model, *every_sequence(model.task))
    assert_close(log_p.exp().sum(), torch.ones(()), CLOSE, "total probability")
    assert (elbo < log_p).all()


@pytest.mark.parametrize("name", EXACT)
@torch.no_grad()
def test_total_score_is_the_elbo_in_training_and_evaluation(name: str) -> None:
    model = vae(name, samples=4096, **TWO)
    tokens, lengths = copies(model)
    elbo = exact(model, tokens[:1], lengths[:1])[0][0]
    actual, error = mean_and_error(log_prob(model, tokens, lengths, training=True).sum(1))
    assert_close(actual, elbo, 5 * error.item(), "mean training score")
    actual = log_prob(model, tokens[:1], lengths[:1]).sum()
    assert_close(actual, elbo, 5 * error.item(), "evaluation score")


@torch.no_grad()
def test_two_sample_bound_equals_enumeration() -> None:
    """Compare `iw_bound` with the exact expectation of log (w + w') / 2 over pairs."""
    model = small("gru_ternary_vae", **TWO)
    tokens, lengths = copies(model)
    log_q, log_w = (part[:, 0] for part in discrete_parts(model, tokens[:1], lengths[:1]))
    pairs = (log_q[:, None] + log_q).exp()
    bound_2 = (pairs * (torch.logaddexp(log_w[:, None], log_w) - torch.tensor(2.0).log())).sum()
    assert (log_q.exp() * log_w).sum() < bound_2 < torch.logsumexp(log_q + log_w, dim=0)
    torch.manual_seed(1)
    actual, error = mean_and_error(model.iw_bound(tokens, lengths, 2))
    assert_close(actual, bound_2, 5 * error.item(), "bound of two draws")


@pytest.mark.parametrize("name", EXACT)
def test_next_token_distribution_is_a_mixture_over_the_prior(name: str) -> None:
    """The product over a sequence is the mean over prior draws of P(s | z)."""
    model = vae(name, samples=4096, **TWO)
    density.law_next_is_a_distribution(vae(name, **TWO))
    tokens, lengths = every_sequence(model.task)
    tokens, lengths = tokens[::9], lengths[::9]
    total = sum(
        next_log_prob(model, tokens[:, :t]).gather(1, tokens[:, t : t + 1])[:, 0]
        for t in range(1, model.task.length)
    )
    with torch.no_grad():
        log_p = exact(model, tokens, lengths)[1]
    assert_close(total, log_p, 0.05, "log P by decoding, and exactly")


EVERY = [name for name in MODELS if issubclass(MODELS[name], VAE)]
DRAWS = 4000


def first_scores(model: VAE, state: object, count: int) -> Tensor:
    scores, _ = model.advance(state, torch.full((count,), START))
    return scores.exp()


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_each_sample_has_its_own_draw_of_the_prior(name: str) -> None:
    """The mean over samples is the mixture over many draws; with a shared draw it is not."""
    model, many = small(name), small(name, samples=DRAWS)
    many.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(0)
    drawn = first_scores(model, model.begin_samples(DRAWS, generator=generator), DRAWS)
    error = drawn.std(0) / DRAWS**0.5
    assert (drawn.std(0) > 0).all()
    expected = many.next_log_prob(torch.tensor([[START]])).exp()[0]
    assert ((drawn.mean(0) - expected).abs() < 5 * error + 1e-6).all()
    again = torch.Generator().manual_seed(0)
    assert drawn.equal(first_scores(model, model.begin_samples(DRAWS, generator=again), DRAWS))


@pytest.mark.parametrize("name", EVERY)
def test_a_vae_generates_unless_it_leaks(name: str) -> None:
    model = small(name)
    assert model.generates
    assert not model.causal
    assert not small(name, norm="time_std").generates


@torch.no_grad()
def test_a_report_states_the_standard_deviation_and_a_tighter_bound() -> None:
    model = small("gru_vae")
    model.z.log_beta.fill_(1.0)
    tokens, lengths = batch(model.task)
    facts = model.report(tokens, lengths)
    assert facts["posterior standard deviation"] == pytest.approx(1 / torch.e, rel=1e-5)
    elbo = -model.eval().log_prob(tokens, lengths).sum(1).mean().item()
    assert facts["bound of 64 samples"] < elbo


FIELDS: list[dict[str, Any]] = [
    {"samples": 1},
    {"samples": 3, "norm": "none"},
    {"samples": 3, "cell": "lstm"},
    {"samples": 3, "cell": "hm_lstm", "norm": "l2"},
    {"samples": 3, "cell": {"name": "mgru", "mutations": [4]}, "norm": "std"},
    {"samples": 3, "norm": "time_std_causal"},
]


@pytest.mark.parametrize("law", [law_advance_equals_next_log_prob, law_state_has_the_declared_size])
@pytest.mark.parametrize("name", ["gru_vae", "gru_ternary_vae"])
@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_stepwise_decoding_equals_reading_the_whole_prefix(
    law: Law, name: str, fields: dict[str, Any]
) -> None:
    """Parameters are scaled up, so that the draws have different weights."""
    law(small(name, **fields))
