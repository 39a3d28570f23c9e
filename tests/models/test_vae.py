"""VAEs: bounds by sums or quadrature over the latent, samples, gradients, stepwise decoding."""

import math

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss

from lmzoo.contract import MODELS, START
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws import density
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from lmzoo.models.flat_autoencoder import GaussianCode
from lmzoo.models.gaussian_vae import GaussianLatent, GaussianVAE
from lmzoo.models.vae import VAE
from tests.cases import parametrize
from tests.models.equivalence import small
from tests.tiny import CLOSE, assert_equal_single, batch, every_sequence, tiny

POINTS = 32
"""Quadrature nodes per channel. Without a normaliser, 24 give the same log P to 1e-3."""


def log_prob_given_z(model, tokens, lengths, z):
    """Return log P(s | z) of every z (S, E), or of every z of each sequence (S, B, E); (S, B)."""
    if z.dim() == 2:
        each = z[:, None]
        z = each.expand(-1, len(tokens), -1)
    scored = scored_mask(tokens, lengths)[:, 1:]
    scores = model.decode(tokens, z) * scored
    return scores.sum(-1)


def quadrature():
    """Return nodes ε and log-weights of a product rule for two standard normal channels."""
    points, weights = hermegauss(POINTS)
    nodes = torch.tensor(points).float()
    shares = weights / weights.sum()
    shares = torch.tensor(shares).float()
    # Every pair of nodes.
    eps = torch.cartesian_prod(nodes, nodes)
    products = torch.outer(shares, shares).flatten()
    return eps, products.log()


def gaussian_log_p(model, tokens, lengths):
    """Return log P(s) by quadrature over the prior of two channels."""
    eps, log_weights = quadrature()
    deviation = torch.exp(-model.z.prior_log_beta)
    z = model.z.prior_mean + eps * deviation
    log_p = log_prob_given_z(model, tokens, lengths, z)
    joint = log_weights[:, None] + log_p
    return torch.logsumexp(joint, dim=0)


def gaussian_elbo(model, tokens, lengths):
    """Return the ELBO by quadrature over each sequence's q."""
    eps, log_weights = quadrature()
    h = model.encode_sentence(tokens, lengths)
    noise = eps / model.z.log_beta.exp()
    means = h @ model.z.to_mean
    z = means + noise[:, None]
    scores = log_prob_given_z(model, tokens, lengths, z)
    mean = log_weights.exp() @ scores
    return mean - model.kl(h)


def all_vectors(model):
    """Return all K^E values of a discrete latent, (K^E, E)."""
    width = model.config.width
    values = [torch.tensor(model.values)] * width
    product = torch.cartesian_prod(*values)
    return product.reshape(-1, width)


def discrete_parts(model, tokens, lengths):
    """Return log q(z | s) and log w(z) = log P(s, z) − log q(z | s) of all z, (K^E, B)."""
    z = all_vectors(model)
    h = model.encode_sentence(tokens, lengths)
    each = z[:, None]
    each = each.expand(-1, len(tokens), -1)
    log_q = model.log_prob_of(model.log_q(h), each)
    log_p = log_prob_given_z(model, tokens, lengths, z)
    return log_q, log_p + model.log_ratio(each, h)


ENCODERS = ["gru_vae", "gru_autoencoder", "rnn_autoencoder"]


@torch.no_grad()
@parametrize("name", ENCODERS)
def test_encoder_reads_every_token_and_no_pads(name):
    """The encoder of a VAE does not read `<start>`."""
    model = small(name)
    tokens, _ = batch(model.task)
    task = model.task
    length = task.length - 1
    lengths = torch.full((len(tokens),), length)
    # A VAE has an encoder of sentences, an autoencoder has `encode`.
    encode = getattr(model, "encode_sentence", model.encode)
    before = encode(tokens, lengths)
    # `<start>` is at position 0.
    first = int(name == "gru_vae")
    for t in range(task.length):
        changed = tokens.clone()
        # Another word at one place.
        word = tokens[:, t]
        changed[:, t] = (word + 1) % task.vocab
        change = encode(changed, lengths) - before
        moved = change.abs().amax(1) > 1e-4
        is_read = first <= t < length
        assert (moved == is_read).all()


BERNOULLI = parametrize("name", ["gru_vae", "gru_ternary_vae", "gru_autoencoder"])


def outputs_from(model, z):
    """Return the outputs of the decoder when every channel of the latent is z."""
    tokens, _ = batch(model.task)
    shape = (1, len(tokens), 4)
    z = torch.full(shape, z)
    return model.outputs(tokens, z)


@torch.no_grad()
@BERNOULLI
@parametrize("mutations", [[4], [4, 6]], ids=str)
def test_bernoulli_states_are_probabilities_for_any_latent(name, mutations):
    """Any vector z is mapped to a valid state. A centred cell outputs h - ½."""
    cell = {"name": "mgru", "mutations": mutations}
    model = tiny(name, norm="none", cell=cell)
    model.eval()
    for z in (-3.0, 0.0, 1.0, 3.0):
        h = outputs_from(model, z)
        # Mutation 6 centres the states.
        if 6 in mutations:
            h = h + 0.5
        assert h.min() >= 0
        assert h.max() <= 1


@torch.no_grad()
@BERNOULLI
def test_states_of_other_cells_are_not_bounded(name):
    model = tiny(name, norm="none", cell="gru")
    model.eval()
    h = outputs_from(model, 3.0)
    assert h.max() > 1


EXACT = ["gru_vae", "rnn_vae", "gru_ternary_vae"]
TWO = {"width": 2, "norm": "none"}
"""Two channels and no normaliser: the quadrature needs smooth functions."""
COPIES = 3000
"""Copies of one sequence in a batch; each has an independent draw."""


def exact(model, tokens, lengths):
    """Return the ELBO and log P."""
    if isinstance(model, GaussianVAE):
        elbo = gaussian_elbo(model, tokens, lengths)
        return elbo, gaussian_log_p(model, tokens, lengths)
    log_q, log_w = discrete_parts(model, tokens, lengths)
    terms = log_q.exp() * log_w
    log_p = torch.logsumexp(log_q + log_w, dim=0)
    return terms.sum(0), log_p


def copies(model, count=COPIES):
    """Return copies of one sequence that is shorter than the padded length."""
    tokens, _ = batch(model.task)
    length = model.task.length - 1
    lengths = torch.full((count,), length)
    return tokens[:1].expand(count, -1), lengths


def mean_and_error(draws):
    deviation = draws.std()
    return draws.mean(), deviation / len(draws) ** 0.5


@parametrize("name", EXACT)
@torch.no_grad()
def test_exact_likelihood_sums_to_one_and_exceeds_the_elbo(name):
    model = small(name, **TWO)
    tokens, lengths = every_sequence(model.task)
    elbo, log_p = exact(model, tokens, lengths)
    actual = log_p.exp().sum()
    expected = torch.ones(())
    assert_equal_single(actual, expected)
    assert (elbo < log_p).all()


@parametrize("name", EXACT)
@torch.no_grad()
def test_total_score_is_the_elbo_in_training_and_evaluation(name):
    model = small(name, samples=4096, **TWO)
    tokens, lengths = copies(model)
    sentence, length = copies(model, 1)
    elbo, _ = exact(model, sentence, length)
    scores = log_prob(model, tokens, lengths, training=True)
    actual, error = mean_and_error(scores.sum(1))
    assert abs(actual - elbo) <= 5 * error
    evaluated = log_prob(model, sentence, length).sum()
    assert abs(evaluated - elbo) <= 5 * error


@torch.no_grad()
def test_two_sample_bound_equals_enumeration():
    """Compare `iw_bound` with the exact expectation of log (w + w') / 2 over pairs."""
    model = small("gru_ternary_vae", **TWO)
    sentence, length = copies(model, 1)
    log_q, log_w = discrete_parts(model, sentence, length)
    # Both samples are independent.
    pairs = torch.exp(log_q + log_q.T)
    # The logarithm of the mean of both weights.
    log_sum = torch.logaddexp(log_w, log_w.T)
    log_mean = log_sum - math.log(2)
    bound_2 = (pairs * log_mean).sum()
    elbo, log_p = exact(model, sentence, length)
    assert elbo < bound_2 < log_p
    torch.manual_seed(1)
    tokens, lengths = copies(model)
    h = model.encode_sentence(tokens, lengths)
    # Two draws for each of the copies.
    z = sampled(model, h, 2)
    bound = model.iw_bound(tokens, lengths, z, h)
    actual, error = mean_and_error(bound)
    assert abs(actual - bound_2) <= 5 * error


def sampled(model, h, count):
    """Return draws of the posterior, (S, B, E)."""
    shape = (count, len(h), *model.noise_shape)
    uniform = torch.rand(shape)
    return model.sample_posterior(h, uniform)


@parametrize("name", EXACT)
def test_next_tokens_have_a_distribution(name):
    model = small(name, **TWO)
    density.law_next_is_a_distribution(model)


@parametrize("name", EXACT)
def test_next_token_distribution_is_a_mixture_over_the_prior(name):
    """The product over a sequence is the mean over prior draws of P(s | z)."""
    model = small(name, samples=4096, **TWO)
    tokens, lengths = every_sequence(model.task)
    # Nine of the 81 sequences: each prefix is decoded with 4,096 draws.
    tokens = tokens[::9]
    lengths = lengths[::9]
    total = torch.zeros(len(tokens))
    for t in range(1, model.task.length):
        log_p = next_log_prob(model, tokens[:, :t])
        chosen = log_p.gather(1, tokens[:, t, None])
        total += chosen[:, 0]
    with torch.no_grad():
        _, log_p = exact(model, tokens, lengths)
    assert_close(total, log_p, 0.05, "log P by decoding, and exactly")


EVERY = [name for name in MODELS if issubclass(MODELS[name], VAE)]
DRAWS = 4000


def first_scores(model):
    """Return the distribution of the first token in each of many samples."""
    generator = torch.Generator().manual_seed(0)
    state = model.begin_samples(DRAWS, generator=generator)
    start = torch.full((DRAWS,), START)
    scores, _ = model.advance(state, start)
    return scores.exp()


@parametrize("name", EVERY)
@torch.no_grad()
def test_each_sample_has_its_own_draw_of_the_prior(name):
    """The mean over samples is the mixture over many draws; with a shared draw it is not."""
    model = small(name)
    many = small(name, samples=DRAWS)
    # The same model, whose mixture has many draws.
    many.load_state_dict(model.state_dict())
    drawn = first_scores(model)
    spread = drawn.std(0)
    assert (spread > 0).all()
    start = torch.tensor([[START]])
    (log_p,) = many.next_log_prob(start)
    expected = log_p.exp()
    gap = (drawn.mean(0) - expected).abs()
    error = spread / DRAWS**0.5
    assert (gap < 5 * error + 1e-6).all()


@parametrize("name", EVERY)
@torch.no_grad()
def test_the_generator_decides_the_draws_of_the_prior(name):
    model = small(name)
    first = first_scores(model)
    assert first_scores(model).equal(first)


@parametrize("name", EVERY)
def test_a_vae_generates_unless_it_leaks(name):
    model = small(name)
    assert model.generates
    assert not model.causal
    assert not small(name, norm="time_std").generates


@torch.no_grad()
def test_a_report_states_the_standard_deviation():
    model = small("gru_vae")
    # The deviation is exp(−log β).
    model.z.log_beta.fill_(1.0)
    tokens, lengths = batch(model.task)
    facts = model.report(tokens, lengths)
    deviation = facts["posterior standard deviation"]
    assert deviation == pytest.approx(1 / torch.e, rel=1e-5)


@torch.no_grad()
def test_a_report_states_a_tighter_bound():
    model = small("gru_vae").eval()
    tokens, lengths = batch(model.task)
    facts = model.report(tokens, lengths)
    scores = model.log_prob(tokens, lengths).sum(1)
    assert facts["bound of 64 samples"] < -scores.mean()


CHUNKS = 25
PER_CHUNK = 400


def gradients(model, value):
    """Return the gradients of the encoder and of M in one vector."""
    weights = list(model.encoder.parameters())
    weights.append(model.get_parameter("z.to_logits"))
    actual = torch.autograd.grad(value, weights)
    return torch.cat([gradient.flatten() for gradient in actual])


def estimates(model):
    """Return the gradients of the mean score of many copies, one per chunk."""
    tokens, lengths = copies(model, PER_CHUNK)
    torch.manual_seed(0)
    # The estimator is one of training.
    model.train()
    found = []
    for _ in range(CHUNKS):
        total = model.log_prob(tokens, lengths).sum()
        mean = total / PER_CHUNK
        found.append(gradients(model, mean))
    return torch.stack(found)


def test_score_function_estimator_is_unbiased():
    model = small("gru_ternary_vae", width=2, estimator="score")
    sentence, length = copies(model, 1)
    elbo, _ = exact(model, sentence, length)
    expected = gradients(model, elbo.sum())
    actual = estimates(model)
    error = actual.std(0) / CHUNKS**0.5
    tolerance = 6 * error + CLOSE
    gap = (actual.mean(0) - expected).abs()
    assert (gap <= tolerance).all()
    # The gradient of the KL alone, as in the S0 code, is further away.
    h = model.encode_sentence(sentence, length)
    kl = model.kl(h).sum()
    of_kl = gradients(model, -kl)
    gap = (of_kl - expected).abs()
    assert (gap > tolerance).any()


@parametrize("estimator", ["score", "gumbel"])
@parametrize("training", [False, True])
def test_samples_are_discrete_and_scores_are_unchanged(estimator, training):
    model = small("gru_ternary_vae", estimator=estimator).train(training)
    tokens, lengths = batch(model.task)
    h = model.encode_sentence(tokens, lengths)
    z = sampled(model, h, 7)
    values = set(z.flatten().tolist())
    assert values == {-1.0, 0.0, 1.0}
    pair = z[:2]
    scores = model.reconstruction(tokens, lengths, pair, h)
    expected = model.decode(tokens, pair)
    assert_equal_single(scores, expected)


@torch.no_grad()
def test_kl_equals_enumeration_over_all_latents():
    model = small("gru_ternary_vae", width=3)
    tokens, lengths = batch(model.task)
    h = model.encode_sentence(tokens, lengths)
    vectors = all_vectors(model)[:, None]
    z = vectors.expand(-1, len(h), -1)
    log_q = model.log_q(h)
    q = model.log_prob_of(log_q, z).exp()
    terms = q * model.log_ratio(z, h)
    expected = -terms.sum(0)
    ones = torch.ones(len(h))
    assert_equal_single(q.sum(0), ones)
    assert_equal_single(model.kl(h), expected)
    assert (expected > 0).all()


@parametrize("part", [GaussianCode, GaussianLatent])
def test_vectors_of_a_code_are_drawn_within_one_over_the_root_of_two(part):
    # Wide, so that the largest draw is near its bound.
    vectors = part(1000).named_parameters(recurse=False)
    for name, weight in vectors:
        fan_in = 2
        if name == "to_mean":
            fan_in = 1000
        largest = weight.abs().max()
        assert 0.98 < largest * fan_in**0.5 <= 1, name
