import pytest
import torch
from torch import Tensor

from lmzoo.emissions.mixture import MixtureEmission
from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.emissions.heads import VOCAB, contexts, make
from tests.laws.ask import same
from tests.tiny import FINE


def joint(head: MixtureEmission, y: Tensor, table: Tensor) -> Tensor:
    """Log P(z, v | y) by the definition, through the whole (B, T, K, V)."""
    scale = 1 if head.log_scale is None else head.log_scale.exp()
    words = torch.log_softmax(scale * normalise_vectors(head.means, head.norm) @ table.T, dim=-1)
    gate = torch.log_softmax(y @ head.gate.weight.T + head.gate.bias, dim=-1)
    return gate[..., None] + words


@pytest.fixture(params=[(norm, scaled) for norm in Norm for scaled in (True, False)])
def head(request: pytest.FixtureRequest) -> MixtureEmission:
    norm, scaled = request.param
    return make("mixture", norm, components=3, scaled=scaled)


def test_it_is_its_definition_in_scores_and_gradients(head: MixtureEmission) -> None:
    y, targets, table = contexts()
    inputs = [y.requires_grad_(), table.requires_grad_(), *head.parameters()]
    ours = head.log_prob(y, targets, table)
    dense = joint(head, y, table).logsumexp(-2)
    theirs = dense.gather(-1, targets[..., None])[..., 0]
    same(ours, theirs, FINE, "scores")
    same(head.dense(y, table), dense, FINE, "dense")
    pairs = zip(
        torch.autograd.grad((ours * ours.detach()).sum(), inputs),
        torch.autograd.grad((theirs * theirs.detach()).sum(), inputs),
        strict=True,
    )
    for found, expected in pairs:
        same(found, expected, FINE, "gradient")


def test_the_posterior_is_bayes(head: MixtureEmission) -> None:
    y, targets, table = contexts()
    both = joint(head, y, table)
    bayes = (both - both.logsumexp(-2, keepdim=True)).exp()  # B T K V
    index = targets[..., None, None].expand(-1, -1, 3, 1)
    posterior = head.posterior(y, targets, table)
    same(posterior, bayes.gather(-1, index)[..., 0], FINE, "posterior")
    same(posterior.sum(-1), torch.ones_like(targets).double(), FINE, "sum over components")


def test_one_component_ignores_the_context() -> None:
    y, _, table = contexts()
    one = make("mixture", components=1).dense(y, table)
    same(one, one[:1, :1].expand_as(one), FINE, "dense")
    two = make("mixture", components=2).dense(y, table)
    assert not two.allclose(two[:1, :1].expand_as(two))


@pytest.mark.parametrize("components", [1, 2, 3])
def test_the_matrix_of_probabilities_has_rank_k(components: int) -> None:
    y, _, table = contexts(batch=20)
    probabilities = make("mixture", components=components).dense(y, table).exp()
    values = torch.linalg.svdvals(probabilities.flatten(0, 1))
    assert len(values) == VOCAB
    assert values[components - 1] > 1e-5
    assert values[components:].max() < 1e-12


def test_each_component_is_a_distribution(head: MixtureEmission) -> None:
    _, _, table = contexts()
    total = head.word_table(table).exp().sum(-1)
    same(total, torch.ones_like(total), FINE, "sum over words")


def test_a_scale_belongs_to_each_component_unless_it_is_dropped() -> None:
    assert make("mixture", components=3).log_scale.shape == (3, 1)
    assert make("mixture", components=3, scaled=False).log_scale is None


def test_the_dense_form_is_finite_where_a_component_has_all_but_vanished():
    emission = MixtureEmission(MixtureEmission.Config(components=2, scaled=False), 4, Norm.NONE)
    with torch.no_grad():
        emission.gate.weight.zero_()
        emission.gate.bias.copy_(torch.tensor([0.0, -200.0]))
        emission.means.copy_(torch.tensor([[30.0, 0, 0, 0], [-30.0, 0, 0, 0]]))
    table = torch.tensor([[9.0, 0, 0, 0], [-9.0, 0, 0, 0]])
    dense = emission.dense(torch.zeros(1, 4), table)
    assert bool(dense.isfinite().all())
    torch.testing.assert_close(dense.exp().sum(), torch.tensor(1.0))
