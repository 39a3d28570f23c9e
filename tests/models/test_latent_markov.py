"""Aggregate Markov models, chains of one or two tokens, and latent parents, against sums."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.laws.tiny import assert_close, log_prob
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


def words(model: Any) -> Tensor:
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


def table(model: Any) -> Tensor:
    return model.embedding.weight


def read(model: Any, prefix: Tensor) -> Tensor:
    """Return N(e(s)) of each token."""
    return normalise_vectors(table(model)[prefix], getattr(model.config, "norm", Norm.NONE))


def aggregate_markov(model: Any, prefix: Tensor) -> Tensor:
    return torch.softmax(model.gate(table(model)[prefix[-1]]), 0) @ words(model)


def lagged_aggregate_markov(model: Any, prefix: Tensor) -> Tensor:
    before = torch.full((4,), 1.0 if model.config.pad == "ones" else 0.5)  # is not normalised
    context = [*read(model, prefix).flip(0), *[before] * model.config.window]
    terms = (lag(c) / 2 ** (j + 1) for j, (lag, c) in enumerate(zip(model.lags, context)))  # noqa: B905
    return torch.softmax(sum(terms), 0) @ words(model)


def factorial_aggregate_markov(model: Any, prefix: Tensor) -> Tensor:
    gates = torch.softmax(model.gate(table(model)[prefix[-1]]).view(2, 3), 1)
    factors = (gates[:, None] @ words(model).view(2, 3, -1))[:, 0]
    product = factors[0] * factors[1]
    return product / product.sum()


def prototype_rotation_mixture(model: Any, prefix: Tensor) -> Tensor:
    x = read(model, prefix)[-1]
    w = torch.softmax(model.gate(x), 0)
    mapped = torch.softmax(table(model) @ model.map(x), 0)  # the mapped vector is not normalised
    return w[0] * mapped + w[1:] @ words(model)


def local_hmm(model: Any, prefix: Tensor) -> Tensor:
    before = model.start().exp() * words(model)[:, prefix[-1]]
    return before / before.sum() @ torch.softmax(model.transition, 1) @ words(model)


def latent_crf(model: Any, prefix: Tensor) -> Tensor:
    """A chain of one or two transitions from a uniform state, normalised as a whole."""
    vectors = [torch.ones(4), *read(model, prefix)][-model.context_length :]
    first, *second = (model.potentials(x).view(3, 3).exp() for x in vectors)
    weights = first.sum(0) / first.sum()
    if second:
        weights = weights @ second[0]
    return weights / weights.sum() @ words(model)


def parents(model: Any, prefix: Tensor) -> Tensor:
    """P(v | s_a) is a bigram for each type of arc, or an aggregate Markov model."""
    t = len(prefix)
    total = torch.zeros(VOCAB)
    prior = torch.tensor([float(a >= t - (model.context_length or t)) for a in range(t)])
    if hasattr(model, "alignment"):
        prior = torch.softmax(model.alignment.logits[:t, t], 0)
    for a, x in enumerate(table(model)[prefix]):
        if hasattr(model, "words"):
            own = torch.softmax(model.gate(x), 0) @ words(model)
        else:
            own = torch.softmax(model.transition(x).view(-1, 4) @ table(model).T, 1)
            types = torch.softmax(getattr(model, "types", torch.zeros(1, 1, 1)), 0)
            own = types.expand(-1, LENGTH, LENGTH)[:, a, t] @ own
        total = total + prior[a] / prior.sum() * own
    return total


def two_parents(model: Any, prefix: Tensor) -> Tensor:
    """Return P(i, j, v) of parents i and j, (t, t, V)."""
    t = len(prefix)
    x = table(model)[prefix]
    prior = torch.softmax(model.pairs[:t, :t, t].flatten(), 0).view(t, t, 1)
    logits = model.first(x)[:, None] + model.second(x)
    return prior * (torch.softmax(logits, 2) @ words(model))


LAGGED = "lagged_aggregate_markov"
EQUATIONS: list[tuple[str, Any, dict[str, Any]]] = [
    ("aggregate_markov", aggregate_markov, {}),
    (LAGGED, lagged_aggregate_markov, {"window": 3}),
    (LAGGED, lagged_aggregate_markov, {"window": 3, "pad": "unit"}),
    (LAGGED, lagged_aggregate_markov, {"window": 3, "norm": "rms"}),
    (LAGGED, lagged_aggregate_markov, {"window": 3, "words": "free"}),
    (LAGGED, lagged_aggregate_markov, {"window": 3, "scaled": True}),
    (FACTORIAL, factorial_aggregate_markov, {"groups": 2, "states": 3}),
    ("local_hmm", local_hmm, {}),
    ("bigram_latent_crf", latent_crf, {}),
    ("latent_parent_uniform", parents, {"window": 3}),
    ("latent_parent_uniform", parents, {"window": None}),
    ("latent_parent_positional", parents, {}),
    ("latent_parent_typed", parents, {"types": 2, "arcs": "shared"}),
    ("latent_parent_typed", parents, {"types": 2, "arcs": "positional"}),
    ("two_parent_aggregate_markov", lambda *args: two_parents(*args).sum((0, 1)), {}),
]
EQUATIONS += [("prototype_rotation_mixture", prototype_rotation_mixture, {"norm": n}) for n in Norm]
EQUATIONS += [("trigram_latent_crf", latent_crf, {"norm": n}) for n in Norm]
EQUATIONS += [("aligned_aggregate_markov", parents, {"norm": n}) for n in Norm]


@torch.no_grad()
@pytest.mark.parametrize(("name", "equation", "fields"), EQUATIONS)
def test_distributions_equal_the_equation(name, equation, fields):
    assert_equation(small(name, **fields), equation)


@quick
@given(st.integers(1, 4), st.floats(0.0, 4.0), st.integers(0, 99))
def test_bound_is_at_most_the_exact_score(groups, spread, seed):
    model = small(FACTORIAL, groups=groups)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    tokens, lengths = every_sequence(model.task)
    assert (model.bound(tokens) <= log_prob(model, tokens, lengths)[:, 1:] + CLOSE).all()


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_both_ways_to_compute_the_normaliser_agree(groups):
    """Compare the sum over tokens with the sum over joint states."""
    model = small(FACTORIAL, groups=groups, states=3).double()
    torch.manual_seed(0)
    with torch.no_grad():
        model.words.means.normal_(std=3.0)
    x = model.embedding.weight.detach()[torch.arange(3**groups) % VOCAB]
    by_states = model.log_normaliser(x).detach()
    by_tokens = torch.cat([model.log_normaliser(part).detach() for part in (x[:1], x[1:])])
    assert_equal_double(by_states, by_tokens)


def test_only_training_uses_the_bound():
    exact = small(FACTORIAL)
    bound = small(FACTORIAL, objective="bound")
    tokens, lengths = every_sequence(exact.task)
    for training in (False, True):
        assert_close(
            log_prob(bound, tokens, lengths, training=training)[:, 1:],
            bound.bound(tokens).detach() if training else log_prob(exact, tokens, lengths)[:, 1:],
            SAME,
            f"{training=}",
        )


def test_posterior_mass_of_each_group_is_one_over_g():
    model = small(FACTORIAL, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    by_group = model.posterior(tokens, lengths).unflatten(1, (2, 3)).sum(2)
    assert_equal_single(by_group, torch.full_like(by_group, 1 / 2))


def test_free_table_with_scales_is_refused():
    with pytest.raises(UserError, match="scaled=True with words=free"):
        zoo.config("lagged_aggregate_markov_free", scaled=True)


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
    joint = model.log_weights(tokens[:, :-1]).exp() * words(model).T[tokens[:, 1:]]
    expected = (joint / joint.sum(-1, keepdim=True)).transpose(1, 2)
    assert_equal_single(model.posterior(tokens, lengths), expected)


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
    assert posterior.argmax(1)[0].tolist() == [2 * a + 1 for a in range(LENGTH - 1)]


@torch.no_grad()
def test_the_posterior_of_two_parents_is_that_of_the_second():
    model = small("two_parent_aggregate_markov")
    tokens, _ = batch(model.task)
    posterior = model.posterior(tokens, torch.full((len(tokens),), LENGTH))
    for t in range(1, LENGTH):
        joint = two_parents(model, tokens[0, :t])[..., tokens[0, t]]
        assert_close(posterior[0, :t, t - 1], joint.sum(0) / joint.sum(), CLOSE, f"P(j | s_{t})")
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
