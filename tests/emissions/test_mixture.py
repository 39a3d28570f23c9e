"""Mixtures of K distributions over tokens, with and without a gate."""

import copy
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from lmzoo.emissions import mixture
from lmzoo.emissions.mixture import Components, FreeComponents, MixtureEmission
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.functional.tied_softmax import log_normalisers
from lmzoo.laws.tiny import assert_close
from tests.emissions.support import contexts, make
from tests.tiny import FINE, assert_equal_double, assert_equal_single

K = 4
V = 7
E = 3
KINDS: dict[str, nn.Module] = {
    "plain": Components(K, E, Norm.NONE, scaled=False),
    "scaled": Components(K, E, Norm.RMS, scaled=True),
    "free": FreeComponents(K, V),
}


@pytest.mark.parametrize("kind", KINDS)
def test_token_log_probs_are_entries_of_a_normalised_table(kind):
    components_ = KINDS[kind]
    table = torch.randn(V, E)
    targets = torch.randint(V, (2, 5))
    rows = components_.log_prob_table(table).detach()
    assert_equal_single(rows.exp().sum(1), torch.ones(K))
    log_probs = components_.token_log_probs(targets, table).detach()
    assert_equal_single(log_probs, rows.T[targets])


@pytest.mark.parametrize("kind", ["plain", "scaled"])
def test_scoring_the_vocabulary_equals_scoring_the_targets(kind, monkeypatch):
    components_ = copy.deepcopy(KINDS[kind]).double()
    targets = torch.randint(V, (2, 5))
    table = torch.randn(V, E, dtype=torch.float64, requires_grad=True)
    results = {}
    for limit in (mixture.NAIVE_LIMIT, 0):
        monkeypatch.setattr(mixture, "NAIVE_LIMIT", limit)
        with patch.object(mixture, "log_normalisers", wraps=log_normalisers) as normalise:
            scores = components_.token_log_probs(targets, table)
        assert normalise.called == (limit == 0)
        gradients = torch.autograd.grad(scores.square().sum(), (table, *components_.parameters()))
        results[limit] = (scores.detach(), *gradients)
    for by_vocabulary, by_target in zip(*results.values(), strict=True):
        assert_close(by_vocabulary, by_target, FINE, kind)


def joint(emission: MixtureEmission, y: Tensor, table: Tensor) -> Tensor:
    """Return log P(z, v | y) by the definition, (B, T, K, V)."""
    scale = 1
    if emission.log_scale is not None:
        scale = emission.log_scale.exp()
    tokens = torch.log_softmax(
        scale * normalise_vectors(emission.means, emission.norm) @ table.T, dim=-1
    )
    gate = torch.log_softmax(y @ emission.gate.weight.T + emission.gate.bias, dim=-1)
    return gate[..., None] + tokens


@pytest.fixture(params=[(norm, scaled) for norm in Norm for scaled in (True, False)])
def emission(request: pytest.FixtureRequest) -> MixtureEmission:
    norm, scaled = request.param
    return make("mixture", norm, components=3, scaled=scaled)


def test_it_computes_its_definition_in_scores_and_gradients(emission):
    y, targets, table = contexts()
    inputs = [y.requires_grad_(), table.requires_grad_(), *emission.parameters()]
    ours = emission.log_prob(y, targets, table)
    dense = joint(emission, y, table).logsumexp(-2)
    theirs = dense.gather(-1, targets[..., None])[..., 0]
    assert_equal_double(ours, theirs)
    assert_equal_double(emission.dense(y, table), dense)
    pairs = zip(
        torch.autograd.grad((ours * ours.detach()).sum(), inputs),
        torch.autograd.grad((theirs * theirs.detach()).sum(), inputs),
        strict=True,
    )
    for gradient, expected in pairs:
        assert_equal_double(gradient, expected)


def test_the_posterior_follows_bayes_rule(emission):
    y, targets, table = contexts()
    log_joint = joint(emission, y, table)
    bayes = (log_joint - log_joint.logsumexp(-2, keepdim=True)).exp()  # B T K V
    index = targets[..., None, None].expand(-1, -1, 3, 1)
    posterior = emission.joint(y, targets, table).softmax(-1)
    assert_equal_double(posterior, bayes.gather(-1, index)[..., 0])
    assert_equal_double(posterior.sum(-1), torch.ones_like(targets).double())


def test_scaled_gives_each_component_a_scale():
    assert make("mixture", components=3).log_scale.shape == (3, 1)
    assert make("mixture", components=3, scaled=False).log_scale is None


def test_dense_is_finite_if_a_gate_probability_underflows():
    emission = MixtureEmission(MixtureEmission.Config(components=2, scaled=False), 4, Norm.NONE)
    with torch.no_grad():
        emission.gate.weight.zero_()
        emission.gate.bias.copy_(torch.tensor([0.0, -200.0]))
        emission.means.copy_(torch.tensor([[30.0, 0, 0, 0], [-30.0, 0, 0, 0]]))
    table = torch.tensor([[9.0, 0, 0, 0], [-9.0, 0, 0, 0]])
    dense = emission.dense(torch.zeros(1, 4), table)
    assert bool(dense.isfinite().all())
    torch.testing.assert_close(dense.exp().sum(), torch.tensor(1.0))
