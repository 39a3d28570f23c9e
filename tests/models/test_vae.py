"""VAEs: bounds by sums or quadrature over the latent, samples, gradients, stepwise decoding."""

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from lmzoo.contract import MODELS, START
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws import density
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from lmzoo.models.flat_autoencoder import GaussianCode
from lmzoo.models.gaussian_vae import GaussianLatent, GaussianVAE
from lmzoo.models.vae import VAE
from tests.models.equivalence import small
from tests.tiny import CLOSE, assert_equal_single, batch, every_sequence, tiny

POINTS = 32
"""Quadrature nodes per channel. Without a normaliser, 24 give the same log P to 1e-3."""


def log_prob_given_z(model: VAE, tokens: Tensor, lengths: Tensor, z: Tensor) -> Tensor:
    """Return log P(s | z) of every z (S, E), shape (S, B)."""
    scores = model.decode(tokens, z[:, None].expand(-1, len(tokens), -1))
    return (scores * scored_mask(tokens, lengths)[:, 1:]).sum(-1)


def quadrature(nodes: int = POINTS, channels: int = 2) -> tuple[Tensor, Tensor]:
    """Return nodes ε and log-weights of a product rule for standard normal channels."""
    points, weights = (torch.tensor(a, dtype=torch.float32) for a in hermegauss(nodes))
    weights = torch.cartesian_prod(*[weights / weights.sum()] * channels)
    return torch.cartesian_prod(*[points] * channels), weights.log().sum(1)


def gaussian_log_p(model: VAE, tokens: Tensor, lengths: Tensor, nodes: int = POINTS) -> Tensor:
    """Return log P(s) by quadrature over the prior of two channels."""
    eps, log_weights = quadrature(nodes)
    z = model.z.prior_mean + eps / model.z.prior_log_beta.exp()
    return torch.logsumexp(
        log_weights[:, None] + log_prob_given_z(model, tokens, lengths, z), dim=0
    )


def gaussian_elbo(model: VAE, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the ELBO by quadrature over each sequence's q."""
    eps, log_weights = quadrature()
    h = model.encode_sentence(tokens, lengths)
    z = (h @ model.z.to_mean)[None] + (eps / model.z.log_beta.exp())[:, None]
    scores = (model.decode(tokens, z) * scored_mask(tokens, lengths)[:, 1:]).sum(-1)
    return (log_weights.exp()[:, None] * scores).sum(0) - model.kl(h)


def all_vectors(model: VAE) -> Tensor:
    """Return all K^E values of a discrete latent, (K^E, E)."""
    width = model.config.width
    return torch.cartesian_prod(*[torch.tensor(model.values)] * width).reshape(-1, width)


def discrete_parts(model: VAE, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return log q(z | s) and log w(z) = log P(s, z) − log q(z | s) of all z, (K^E, B)."""
    z = all_vectors(model)
    h = model.encode_sentence(tokens, lengths)
    per_z = z[:, None].expand(-1, len(tokens), -1)
    log_q = model.log_prob_of(model.log_q(h), per_z)
    return log_q, log_prob_given_z(model, tokens, lengths, z) + model.log_ratio(per_z, h)


@torch.no_grad()
@pytest.mark.parametrize("name", ["gru_vae", "gru_autoencoder", "rnn_autoencoder"])
def test_encoder_reads_every_token_and_no_pads(name):
    """The encoder of a VAE does not read `<start>`."""
    model: Any = small(name)
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length - 1)
    encode = getattr(model, "encode_sentence", model.encode)
    before = encode(tokens, lengths)
    for t in range(model.task.length):
        changed = tokens.clone()
        changed[:, t] = (tokens[:, t] + 1) % model.task.vocab
        moved = (encode(changed, lengths) - before).abs().amax(1)
        assert ((moved > 1e-4) == (int(name == "gru_vae") <= t < model.task.length - 1)).all()


@torch.no_grad()
@pytest.mark.parametrize("name", ["gru_vae", "gru_ternary_vae", "gru_autoencoder"])
@pytest.mark.parametrize("mutations", [[4], [4, 6]], ids=str)
def test_bernoulli_states_are_probabilities_for_any_latent(name, mutations):
    """Any vector z is mapped to a valid state. A centred cell outputs h - ½."""
    model = tiny(name, norm="none", cell={"name": "mgru", "mutations": mutations}).eval()
    tokens, _ = batch(model.task)
    for z in (-3.0, 0.0, 1.0, 3.0):
        h = model.outputs(tokens, torch.full((1, len(tokens), 4), z))
        if 6 in mutations:
            h = h + 0.5
        assert h.min() >= 0
        assert h.max() <= 1
    with_memory = tiny(name, norm="none", cell="gru").eval()
    start = torch.full((1, len(tokens), 4), 3.0)
    assert with_memory.outputs(tokens, start).max() > 1  # states of other cells are unbounded


EXACT = ["gru_vae", "rnn_vae", "gru_ternary_vae"]
TWO = {"width": 2, "norm": "none"}
"""Two channels and no normaliser: the quadrature needs smooth functions."""
COPIES = 3000
"""Copies of one sequence in a batch; each has an independent draw."""


def exact(model: VAE, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ELBO and log P."""
    if isinstance(model, GaussianVAE):
        return gaussian_elbo(model, tokens, lengths), gaussian_log_p(model, tokens, lengths)
    log_q, log_w = discrete_parts(model, tokens, lengths)
    return (log_q.exp() * log_w).sum(0), torch.logsumexp(log_q + log_w, dim=0)


def copies(model: VAE, count: int = COPIES) -> tuple[Tensor, Tensor]:
    """Return copies of one sequence that is shorter than the padded length."""
    tokens, _ = batch(model.task)
    return tokens[:1].expand(count, -1), torch.full((count,), model.task.length - 1)


def mean_and_error(draws: Tensor) -> tuple[Tensor, Tensor]:
    return draws.mean(), draws.std() / len(draws) ** 0.5


@pytest.mark.parametrize("name", EXACT)
@torch.no_grad()
def test_exact_likelihood_sums_to_one_and_exceeds_the_elbo(name):
    model = small(name, **TWO)
    elbo, log_p = exact(model, *every_sequence(model.task))
    assert_equal_single(log_p.exp().sum(), torch.ones(()))
    assert (elbo < log_p).all()


@pytest.mark.parametrize("name", EXACT)
@torch.no_grad()
def test_total_score_is_the_elbo_in_training_and_evaluation(name):
    model = small(name, samples=4096, **TWO)
    tokens, lengths = copies(model)
    elbo = exact(model, tokens[:1], lengths[:1])[0][0]
    actual, error = mean_and_error(log_prob(model, tokens, lengths, training=True).sum(1))
    assert_close(actual, elbo, 5 * error.item(), "mean training score")
    actual = log_prob(model, tokens[:1], lengths[:1]).sum()
    assert_close(actual, elbo, 5 * error.item(), "evaluation score")


@torch.no_grad()
def test_two_sample_bound_equals_enumeration():
    """Compare `iw_bound` with the exact expectation of log (w + w') / 2 over pairs."""
    model = small("gru_ternary_vae", **TWO)
    tokens, lengths = copies(model)
    log_q, log_w = (part[:, 0] for part in discrete_parts(model, tokens[:1], lengths[:1]))
    pairs = (log_q[:, None] + log_q).exp()
    bound_2 = (pairs * (torch.logaddexp(log_w[:, None], log_w) - torch.tensor(2.0).log())).sum()
    assert (log_q.exp() * log_w).sum() < bound_2 < torch.logsumexp(log_q + log_w, dim=0)
    torch.manual_seed(1)
    h = model.encode_sentence(tokens, lengths)
    z = model.sample_posterior(h, torch.rand(2, len(h), *model.noise_shape))
    actual, error = mean_and_error(model.iw_bound(tokens, lengths, z, h))
    assert_close(actual, bound_2, 5 * error.item(), "bound of two draws")


@pytest.mark.parametrize("name", EXACT)
def test_next_token_distribution_is_a_mixture_over_the_prior(name):
    """The product over a sequence is the mean over prior draws of P(s | z)."""
    model = small(name, samples=4096, **TWO)
    density.law_next_is_a_distribution(small(name, **TWO))
    tokens, lengths = every_sequence(model.task)
    tokens = tokens[::9]
    lengths = lengths[::9]
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
def test_each_sample_has_its_own_draw_of_the_prior(name):
    """The mean over samples is the mixture over many draws; with a shared draw it is not."""
    model = small(name)
    many = small(name, samples=DRAWS)
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
def test_a_vae_generates_unless_it_leaks(name):
    model = small(name)
    assert model.generates
    assert not model.causal
    assert not small(name, norm="time_std").generates


@torch.no_grad()
def test_a_report_states_the_standard_deviation_and_a_tighter_bound():
    model = small("gru_vae")
    model.z.log_beta.fill_(1.0)
    tokens, lengths = batch(model.task)
    facts = model.report(tokens, lengths)
    assert facts["posterior standard deviation"] == pytest.approx(1 / torch.e, rel=1e-5)
    elbo = -model.eval().log_prob(tokens, lengths).sum(1).mean().item()
    assert facts["bound of 64 samples"] < elbo


CHUNKS = 25
PER_CHUNK = 400


def gradients(model: VAE, value: Tensor) -> Tensor:
    """Return the gradients of the encoder and of M in one vector."""
    names = [*dict(model.encoder.named_parameters(prefix="encoder")), "z.to_logits"]
    actual = torch.autograd.grad(value, [model.get_parameter(name) for name in names])
    return torch.cat([gradient.flatten() for gradient in actual])


def exact_gradient(model: VAE) -> Tensor:
    log_q, log_w = discrete_parts(model, *copies(model, 1))
    return gradients(model, (log_q.exp() * log_w).sum())


def estimates(model: VAE) -> Tensor:
    """Return the gradients of the mean score of many copies, one per chunk."""
    tokens, lengths = copies(model, PER_CHUNK)
    torch.manual_seed(0)
    model.train()
    return torch.stack(
        [gradients(model, model.log_prob(tokens, lengths).sum() / PER_CHUNK) for _ in range(CHUNKS)]
    )


def test_score_function_estimator_is_unbiased():
    model = small("gru_ternary_vae", width=2, estimator="score")
    exact = exact_gradient(model)
    actual = estimates(model)
    error = actual.std(0) / CHUNKS**0.5
    assert ((actual.mean(0) - exact).abs() <= 6 * error + CLOSE).all()
    # The gradient of the KL alone, as in the S0 code, is further away.
    h = model.encode_sentence(*copies(model, 1))
    assert ((gradients(model, -model.kl(h).sum()) - exact).abs() > 6 * error + CLOSE).any()


@pytest.mark.parametrize("estimator", ["score", "gumbel"])
@pytest.mark.parametrize("training", [False, True])
def test_samples_are_discrete_and_scores_are_unchanged(estimator, training):
    model = small("gru_ternary_vae", estimator=estimator).train(training)
    tokens, lengths = batch(model.task)
    h = model.encode_sentence(tokens, lengths)
    z = model.sample_posterior(h, torch.rand(7, len(h), *model.noise_shape))
    assert set(z.flatten().tolist()) == {-1.0, 0.0, 1.0}
    pair = z[:2]
    scores = model.reconstruction(tokens, lengths, pair, h)
    assert_equal_single(scores, model.decode(tokens, pair))


@torch.no_grad()
def test_kl_equals_enumeration_over_all_latents():
    model = small("gru_ternary_vae", width=3)
    h = model.encode_sentence(*batch(model.task))
    z = all_vectors(model)
    z = z[:, None].expand(-1, len(h), -1)
    log_q = model.log_prob_of(model.log_q(h), z)
    assert_equal_single(log_q.exp().sum(0), torch.ones(len(h)))
    assert_equal_single(model.kl(h), -(log_q.exp() * model.log_ratio(z, h)).sum(0))
    assert (model.kl(h) > 0).all()


@pytest.mark.parametrize("part", [GaussianCode, GaussianLatent])
def test_vectors_of_a_code_are_drawn_within_one_over_the_root_of_two(part):
    for name, weight in part(1000).named_parameters(recurse=False):
        fan_in = 2
        if name == "to_mean":
            fan_in = 1000
        assert 0.98 < weight.abs().max() * fan_in**0.5 <= 1, name
