"""Mixtures of K distributions over tokens, with and without a gate."""

import copy
import itertools
from unittest.mock import patch

import pytest
import torch

from lmzoo.emissions import mixture
from lmzoo.emissions.mixture import Components, FreeComponents, MixtureEmission
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.functional.tied_softmax import log_normalisers
from tests.cases import parametrize
from tests.emissions.support import contexts, make
from tests.models.equivalence import token_scores
from tests.tiny import assert_equal_double, assert_equal_single

K = 4
V = 7
E = 3
KINDS = {
    "plain": Components(K, E, Norm.NONE, scaled=False),
    "scaled": Components(K, E, Norm.RMS, scaled=True),
    "free": FreeComponents(K, V),
}


@parametrize("kind", KINDS)
def test_token_log_probs_are_entries_of_a_normalised_table(kind):
    table = torch.randn(V, E)
    targets = torch.randint(V, (2, 5))
    components = KINDS[kind]
    rows = components.log_prob_table(table)
    log_probs = components.token_log_probs(targets, table)
    mass = rows.exp().sum(1)
    assert_equal_single(mass, torch.ones(K))
    assert_equal_single(log_probs, rows.T[targets])


@parametrize("kind", ["plain", "scaled"])
def test_scoring_the_vocabulary_equals_scoring_the_targets(kind, monkeypatch):
    components = copy.deepcopy(KINDS[kind]).double()
    targets = torch.randint(V, (2, 5))
    table = torch.randn(V, E).double().requires_grad_()
    leaves = [table] + list(components.parameters())

    def results(*, by_target):
        """Return the scores and the gradients of one form."""
        with patch.object(mixture, "log_normalisers", wraps=log_normalisers) as normalise:
            scores = components.token_log_probs(targets, table)
        assert normalise.called == by_target
        loss = scores.square().sum()
        gradients = torch.autograd.grad(loss, leaves)
        return [scores] + list(gradients)

    expected = results(by_target=False)
    # Then no table of all words is computed.
    monkeypatch.setattr(mixture, "NAIVE_LIMIT", 0)
    actual = results(by_target=True)
    for found, reference in zip(actual, expected, strict=True):
        assert_equal_double(found, reference)


def joint(emission, y, table):
    """Return log P(z, v | y) by the definition, (B, T, K, V)."""
    means = normalise_vectors(emission.means, emission.norm)
    if emission.log_scale is not None:
        means = emission.log_scale.exp() * means
    tokens = torch.log_softmax(means @ table.T, dim=-1)
    logits = emission.gate(y)
    gate = torch.log_softmax(logits, dim=-1)
    return gate[..., None] + tokens


EVERY_MIXTURE = list(itertools.product(Norm, (True, False)))


@pytest.fixture(params=EVERY_MIXTURE)
def emission(request):
    norm, scaled = request.param
    return make("mixture", norm, components=3, scaled=scaled)


def test_it_computes_its_definition_in_scores_and_gradients(emission):
    y, targets, table = contexts()
    y.requires_grad_()
    table.requires_grad_()
    inputs = [y, table] + list(emission.parameters())
    ours = emission.log_prob(y, targets, table)
    dense = joint(emission, y, table).logsumexp(-2)
    theirs = token_scores(dense, targets)
    assert_equal_double(ours, theirs)
    found = emission.dense(y, table)
    assert_equal_double(found, dense)
    # Squares, whose gradients differ between tokens.
    our_loss = ours.square().sum()
    their_loss = theirs.square().sum()
    actual = torch.autograd.grad(our_loss, inputs)
    expected = torch.autograd.grad(their_loss, inputs)
    for gradient, reference in zip(actual, expected, strict=True):
        assert_equal_double(gradient, reference)


def test_the_posterior_follows_bayes_rule(emission):
    y, targets, table = contexts()
    log_joint = joint(emission, y, table)
    log_p = log_joint.logsumexp(-2, keepdim=True)
    bayes = (log_joint - log_p).exp()  # B T K V
    # The same word for each of three components.
    index = targets[..., None, None]
    index = index.expand(-1, -1, 3, 1)
    expected = bayes.gather(-1, index)[..., 0]
    scores = emission.joint(y, targets, table)
    posterior = scores.softmax(-1)
    assert_equal_double(posterior, expected)


def test_scaled_gives_each_component_a_scale():
    scaled = make("mixture", components=3)
    plain = make("mixture", components=3, scaled=False)
    assert scaled.log_scale.shape == (3, 1)
    assert plain.log_scale is None


def test_dense_is_finite_if_a_gate_probability_underflows():
    config = MixtureEmission.Config(components=2, scaled=False)
    emission = MixtureEmission(config, 4, Norm.NONE)
    # e^-200 is zero in single precision.
    bias = torch.tensor([0.0, -200.0])
    with torch.no_grad():
        emission.gate.weight.zero_()
        emission.gate.bias.copy_(bias)
        emission.means.zero_()
        opposite = torch.tensor([30.0, -30.0])
        emission.means[:, 0] = opposite
    table = torch.zeros(2, 4)
    table[:, 0] = torch.tensor([9.0, -9.0])
    y = torch.zeros(1, 4)
    dense = emission.dense(y, table)
    assert dense.isfinite().all()
    actual = dense.exp().sum()
    expected = torch.tensor(1.0)
    torch.testing.assert_close(actual, expected)
