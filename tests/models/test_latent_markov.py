"""Aggregate Markov models, chains of one or two tokens, and latent parents, against sums."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.laws.tiny import assert_close, log_prob
from tests.cases import cases
from tests.largest_tensor import LargestTensorMode
from tests.models.equivalence import (
    ALWAYS,
    LENGTH,
    NEVER,
    VOCAB,
    assert_equation,
    set_weights,
    small,
)
from tests.tiny import (
    CLOSE,
    SAME,
    assert_equal_double,
    assert_equal_single,
    batch,
    every_sequence,
    quick,
    tiny,
)

FACTORIAL = "factorial_aggregate_markov"


def words(model) -> Tensor:
    """Return P(v | z), (K, V)."""
    if hasattr(model, "words"):
        part = model.words
    else:
        part = model.prototypes
    if not hasattr(part, "means"):
        return torch.softmax(part.logits, dim=1)
    scale = 1
    if part.log_scale is not None:
        scale = part.log_scale.exp()
    return torch.softmax(scale * normalise_vectors(part.means, part.norm) @ table(model).T, dim=1)


def table(model) -> Tensor:
    return model.embedding.weight


def read(model, prefix: Tensor) -> Tensor:
    """Return N(e(s)) of each token."""
    return normalise_vectors(table(model)[prefix], getattr(model.config, "norm", Norm.NONE))


def gate_of(model, prefix: Tensor) -> Tensor:
    """Return the logits of the latent that reads the last token."""
    return model.gate(table(model)[prefix[-1]])


def aggregate_markov(model, prefix: Tensor) -> Tensor:
    return torch.softmax(gate_of(model, prefix), 0) @ words(model)


def lagged_aggregate_markov(model, prefix: Tensor) -> Tensor:
    """The vectors before the start are not normalised."""
    fill = 0.5
    if model.config.pad == "ones":
        fill = 1.0
    before = torch.full((model.config.window, 4), fill)
    context = torch.cat([read(model, prefix).flip(0), before])
    logits = torch.zeros(len(words(model)))
    for j, lag in enumerate(model.lags):
        logits = logits + lag(context[j]) / 2 ** (j + 1)
    return torch.softmax(logits, 0) @ words(model)


def factorial_aggregate_markov(model, prefix: Tensor) -> Tensor:
    gates = torch.softmax(gate_of(model, prefix).view(2, 3), 1)
    by_group = words(model).view(2, 3, -1)
    factors = torch.einsum("gk,gkv->gv", gates, by_group)
    product = factors[0] * factors[1]
    return product / product.sum()


def prototype_rotation_mixture(model, prefix: Tensor) -> Tensor:
    x = read(model, prefix)[-1]
    weights = torch.softmax(model.gate(x), 0)
    # The mapped vector is not normalised.
    mapped = torch.softmax(table(model) @ model.map(x), 0)
    return weights[0] * mapped + weights[1:] @ words(model)


def local_hmm(model, prefix: Tensor) -> Tensor:
    joint = model.start().exp() * words(model)[:, prefix[-1]]
    filtered = joint / joint.sum()
    return filtered @ torch.softmax(model.transition, 1) @ words(model)


def latent_crf(model, prefix: Tensor) -> Tensor:
    """A chain of one or two transitions from a uniform state, normalised as a whole."""
    vectors = torch.cat([torch.ones(1, 4), read(model, prefix)])
    weights = torch.ones(3)
    for x in vectors[-model.context_length :]:
        potentials = model.potentials(x).view(3, 3).exp()
        weights = weights @ potentials
        weights = weights / weights.sum()
    return weights @ words(model)


def parents(model, prefix: Tensor) -> Tensor:
    """P(v | s_a) is a bigram for each type of arc, or an aggregate Markov model."""
    t = len(prefix)
    prior = torch.ones(t)
    if model.context_length is not None:
        prior[: max(0, t - model.context_length)] = 0
    if hasattr(model, "alignment"):
        prior = torch.softmax(model.alignment.logits[:t, t], 0)
    total = torch.zeros(VOCAB)
    for a, x in enumerate(table(model)[prefix]):
        if hasattr(model, "words"):
            of_parent = torch.softmax(model.gate(x), 0) @ words(model)
        else:
            of_parent = type_weights(model, a, t) @ bigrams(model, x)
        total = total + prior[a] / prior.sum() * of_parent
    return total


def bigrams(model, x: Tensor) -> Tensor:
    """Return P(v | s_a, type) of each type of arc, (R, V)."""
    mapped = model.transition(x).view(-1, 4)
    return torch.softmax(mapped @ table(model).T, 1)


def type_weights(model, a: int, t: int) -> Tensor:
    """Return the probabilities of the types of the arc from a to t."""
    logits = getattr(model, "types", torch.zeros(1, 1, 1))
    return torch.softmax(logits, 0).expand(-1, LENGTH, LENGTH)[:, a, t]


def two_parents(model, prefix: Tensor) -> Tensor:
    """Return P(i, j, v) of parents i and j, (t, t, V)."""
    t = len(prefix)
    x = table(model)[prefix]
    prior = torch.softmax(model.pairs[:t, :t, t].flatten(), 0)
    logits = model.first(x)[:, None] + model.second(x)
    states = torch.softmax(logits, 2)
    return prior.view(t, t, 1) * (states @ words(model))


def two_parent_aggregate_markov(model, prefix: Tensor) -> Tensor:
    return two_parents(model, prefix).sum((0, 1))


EQUATIONS = {
    "aggregate_markov": aggregate_markov,
    "lagged_aggregate_markov": lagged_aggregate_markov,
    "factorial_aggregate_markov": factorial_aggregate_markov,
    "prototype_rotation_mixture": prototype_rotation_mixture,
    "local_hmm": local_hmm,
    "latent_crf": latent_crf,
    "parents": parents,
    "two_parent_aggregate_markov": two_parent_aggregate_markov,
}


@torch.no_grad()
@cases("models/cases.toml", "latent", "name, equation, fields")
def test_distributions_equal_the_equation(name, equation, fields):
    assert_equation(small(name, **fields), EQUATIONS[equation])


@torch.no_grad()
def test_parents_without_a_window_are_all_earlier_tokens():
    assert_equation(small("latent_parent_uniform", window=None), parents)


NORMED = {
    "prototype_rotation_mixture": prototype_rotation_mixture,
    "trigram_latent_crf": latent_crf,
    "aligned_aggregate_markov": parents,
}


@torch.no_grad()
@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("name", NORMED)
def test_distributions_equal_the_equation_with_every_norm(name, norm):
    assert_equation(small(name, norm=norm), NORMED[name])


@quick
@given(st.integers(1, 4), st.floats(0.0, 4.0), st.integers(0, 99))
def test_bound_is_at_most_the_exact_score(groups, spread, seed):
    model = small(FACTORIAL, groups=groups)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    tokens, lengths = every_sequence(model.task)
    exact = log_prob(model, tokens, lengths)[:, 1:]
    assert (model.bound(tokens) <= exact + CLOSE).all()


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_both_ways_to_compute_the_normaliser_agree(groups):
    """Compare the sum over tokens with the sum over joint states."""
    model = small(FACTORIAL, groups=groups, states=3).double()
    torch.manual_seed(0)
    with torch.no_grad():
        model.words.means.normal_(std=3.0)
    # As many tokens as joint states, which are summed over then.
    x = model.embedding.weight[torch.arange(3**groups) % VOCAB]
    by_states = model.log_normaliser(x)
    # Fewer sequences than joint states are summed over tokens.
    by_tokens = torch.cat([model.log_normaliser(x[:1]), model.log_normaliser(x[1:])])
    assert_equal_double(by_states, by_tokens)


def test_training_uses_the_bound():
    model = small(FACTORIAL, objective="bound")
    tokens, lengths = every_sequence(model.task)
    scores = log_prob(model, tokens, lengths, training=True)
    assert_close(scores[:, 1:], model.bound(tokens), SAME, "bound")


def test_evaluation_uses_the_exact_score():
    tokens, lengths = every_sequence(small(FACTORIAL).task)
    exact = log_prob(small(FACTORIAL), tokens, lengths)
    evaluated = log_prob(small(FACTORIAL, objective="bound"), tokens, lengths)
    assert_close(evaluated, exact, SAME, "score")


def test_posterior_mass_of_each_group_is_one_over_g():
    model = small(FACTORIAL, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    by_group = model.posterior(tokens, lengths).unflatten(1, (2, 3)).sum(2)
    assert_equal_single(by_group, torch.full_like(by_group, 1 / 2))


def test_latent_value_zero_is_the_map():
    model = small("prototype_rotation_mixture")
    set_weights(model, {"gate.bias": torch.tensor([-NEVER, 0, 0, 0])})
    posterior = model.posterior(*every_sequence(model.task))
    assert posterior.shape[1] == 4
    assert (posterior[:, 0] > 0.99).all()


@pytest.mark.parametrize("name", ["aggregate_markov", "local_hmm", "trigram_latent_crf"])
def test_posterior_follows_bayes_rule(name):
    """P(z | s_t, s_<t) ∝ P(z | s_<t) P(s_t | z)."""
    model = small(name)
    tokens, lengths = batch(model.task)
    prior = model.log_weights(tokens[:, :-1]).exp()
    joint = prior * words(model).T[tokens[:, 1:]]
    expected = joint / joint.sum(-1, keepdim=True)
    assert_equal_single(model.posterior(tokens, lengths), expected.transpose(1, 2))


PREVIOUS = NEVER * (1 - torch.eye(LENGTH).roll(1, 1))
"""Alignment logits Λ with all mass on a = t-1."""


def test_latent_index_of_typed_arcs_is_parent_times_types_plus_type():
    """With all mass on type 1 of the previous token, the posterior is at its index."""
    model = small("latent_parent_typed", types=2, arcs="positional")
    set_weights(model, {"alignment.logits": PREVIOUS})
    chosen = torch.full((2, LENGTH, LENGTH), NEVER)
    chosen[1] = ALWAYS
    set_weights(model, {"types": chosen})
    posterior = model.posterior(*batch(model.task))  # B, a R + r, t
    expected = [2 * a + 1 for a in range(LENGTH - 1)]
    assert posterior.argmax(1)[0].tolist() == expected


@torch.no_grad()
def test_the_posterior_of_two_parents_is_that_of_the_second():
    model = small("two_parent_aggregate_markov")
    tokens, _ = batch(model.task)
    posterior = model.posterior(tokens, torch.full((len(tokens),), LENGTH))
    for t in range(1, LENGTH):
        joint = two_parents(model, tokens[0, :t])[..., tokens[0, t]]
        expected = joint.sum(0) / joint.sum()
        assert_close(posterior[0, :t, t - 1], expected, CLOSE, f"P(j | s_{t})")
        assert not posterior[0, t:, t - 1].any()


def test_largest_tensor_has_at_most_b_t2_k_elements():
    count = 5
    length = 13
    components = 7
    model = tiny("two_parent_aggregate_markov", length=length, components=components)
    tokens, lengths = batch(model.task, count=count)
    with LargestTensorMode() as largest:
        model.log_prob(tokens, lengths).sum().backward()
    assert largest.max_numel <= count * (length - 1) ** 2 * components
