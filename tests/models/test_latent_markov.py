"""Aggregate Markov models, chains of one or two tokens, and latent parents, against sums."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.laws.support import assert_close, log_prob, next_log_prob
from tests.largest_tensor import LargestTensorMode
from tests.models.equivalence import (
    ALWAYS,
    LENGTH,
    NEVER,
    VOCAB,
    assert_same_model,
    copy_weights,
    set_weights,
    small,
)
from tests.tiny import CLOSE, FINE, SAME, batch, every_sequence, quick, tiny

FACTORIAL = "factorial_aggregate_markov"


@quick
@given(st.integers(1, 4), st.floats(0.0, 4.0), st.integers(0, 99))
def test_bound_is_at_most_the_exact_score(groups: int, spread: float, seed: int) -> None:
    model = small(FACTORIAL, groups=groups)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=spread)
    tokens, lengths = every_sequence(model.task)
    assert (model.bound(tokens) <= log_prob(model, tokens, lengths)[:, 1:] + CLOSE).all()


def test_score_is_the_normalised_product_of_the_groups() -> None:
    model = small(FACTORIAL, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    factors = []
    for g in range(2):
        part = small("aggregate_markov")
        copy_weights(part, model, "embedding.weight")
        own = slice(3 * g, 3 * g + 3)
        set_weights(
            part, {"gate.weight": model.gate.weight[own], "gate.bias": model.gate.bias[own]}
        )
        set_weights(part, {"words.means": model.words.means[own]})
        factors.append(part.next_log_prob(torch.arange(VOCAB)[:, None]).exp().detach())
    product = factors[0] * factors[1]
    expected = product / product.sum(1, keepdim=True)
    actual = log_prob(model, tokens, lengths)[:, 1:].exp()
    assert_close(actual, expected[tokens[:, :-1], tokens[:, 1:]], CLOSE, "P(v | s)")


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_both_ways_to_compute_the_normaliser_agree(groups: int) -> None:
    """Compare the sum over tokens with the sum over joint states: values and gradients."""
    model = small(FACTORIAL, groups=groups, states=3).double()
    torch.manual_seed(0)
    with torch.no_grad():
        model.words.means.normal_(std=3.0)
    x = model.embedding.weight.detach()[torch.arange(3**groups) % VOCAB]
    slopes = []
    for actual in (
        model.log_normaliser(x),
        torch.cat([model.log_normaliser(x[:1]), model.log_normaliser(x[1:])]),
        torch.logsumexp(model._product(x), dim=-1),
    ):
        slopes.append((actual.detach(), *gradients(model, actual)))
    for parts in slopes[1:]:
        for expected, part in zip(slopes[0], parts, strict=True):
            assert_close(part, expected, FINE, "normaliser or gradient")


def gradients(model: LanguageModel, actual: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return gradients of a sum in which every context has a different weight."""
    weighted = actual * torch.arange(1, len(actual) + 1)
    return torch.autograd.grad(weighted.sum(), [model.words.means, model.gate.weight])


def test_only_training_uses_the_bound() -> None:
    exact, bound = small(FACTORIAL), small(FACTORIAL, objective="bound")
    tokens, lengths = every_sequence(exact.task)
    for training in (False, True):
        assert_close(
            log_prob(bound, tokens, lengths, training=training)[:, 1:],
            bound.bound(tokens).detach() if training else log_prob(exact, tokens, lengths)[:, 1:],
            SAME,
            f"{training=}",
        )


def test_posterior_mass_of_each_group_is_one_over_g() -> None:
    model = small(FACTORIAL, groups=2, states=3)
    tokens, lengths = every_sequence(model.task)
    by_group = model.posterior(tokens, lengths).unflatten(1, (2, 3)).sum(2)
    assert_close(by_group.detach(), torch.full_like(by_group, 1 / 2), CLOSE, "mass of a group")


LAGGED = "lagged_aggregate_markov"


@pytest.mark.parametrize("norm", ["none", "rms"])
@pytest.mark.parametrize("pad", ["ones", "unit"])
def test_scores_follow_the_equation(pad: str, norm: str) -> None:
    """The vector before `<start>` is not normalised."""
    model = small(LAGGED, window=3, pad=pad, norm=norm)
    tokens, _ = every_sequence(model.task)
    table, k = (
        normalise_vectors(x, Norm(norm)) for x in (model.embedding.weight, model.words.means)
    )
    before = torch.full((len(tokens), 1, 4), 1.0 if pad == "ones" else 0.5)
    for t in range(1, 5):
        context = [table[tokens[:, t - j]] if t >= j else before[:, 0] for j in (1, 2, 3)]
        terms = (
            lag(c) / 2 ** (j + 1)
            for j, (lag, c) in enumerate(zip(model.lags, context, strict=True))
        )
        weights = torch.softmax(sum(terms), dim=1)
        expected = weights @ torch.softmax(k @ model.embedding.weight.T, dim=1)
        assert_close(
            next_log_prob(model, tokens[:, :t]).exp(), expected.detach(), CLOSE, f"after {t}"
        )


def test_free_table_can_equal_the_tied_table() -> None:
    free, tied = small(f"{LAGGED}_free"), small(LAGGED)
    copy_weights(free, tied, *(name for name, _ in tied.named_parameters() if "words" not in name))
    set_weights(free, {"words.logits": tied.words.means @ tied.embedding.weight.T})
    assert_same_model(free, tied)


def test_free_table_with_scales_is_refused() -> None:
    with pytest.raises(UserError, match="scaled=True with words=free"):
        zoo.config(f"{LAGGED}_free", scaled=True)


@pytest.mark.parametrize("norm", list(Norm))
def test_mapped_vector_is_not_normalised(norm: Norm) -> None:
    """N is applied to the previous token and to the prototypes only."""
    model = small("prototype_rotation_mixture_sphere", norm=norm)
    prefix = every_sequence(model.task)[0][:, :3]
    table = model.embedding.weight
    x = normalise_vectors(table[prefix[:, -1]], norm)
    k = normalise_vectors(model.prototypes.means, norm)
    w = torch.softmax(model.gate(x), dim=1)
    expected = w[:, :1] * torch.softmax(model.map(x) @ table.T, dim=1)
    expected = expected + w[:, 1:] @ torch.softmax(k @ table.T, dim=1)
    assert_close(next_log_prob(model, prefix).exp(), expected.detach(), CLOSE, "P(v | s)")


def test_latent_value_zero_is_the_map() -> None:
    model = small("prototype_rotation_mixture")
    set_weights(model, {"gate.bias": torch.tensor([-NEVER, 0, 0, 0])})
    posterior = model.posterior(*every_sequence(model.task))
    assert posterior.shape[1] == 4
    assert (posterior[:, 0] > 0.99).all()


BIGRAMS = ["aggregate_markov", "local_hmm", "bigram_latent_crf"]


def bigram(model: LanguageModel) -> Tensor:
    """Return the matrix P(v | s), (V, V), from the model's scores."""
    pairs, lengths = every_sequence(model.task)
    scores = log_prob(model, pairs, lengths).exp()
    actual = torch.zeros(VOCAB, VOCAB)
    actual[pairs[:, 1], pairs[:, 2]] = scores[:, 2]
    return actual


def words(model: LanguageModel) -> Tensor:
    """Return P(v | z), (K, V)."""
    return torch.softmax(model.words.means @ model.embedding.weight.T, dim=1).detach()


def test_local_hmm_equals_the_two_step_hmm_conditional() -> None:
    """Compute P(s, v) / P(s) by enumerating every pair of states."""
    model = small("local_hmm", components=3)
    start, transition = model.start().exp(), torch.softmax(model.transition, dim=1)
    says, expected = words(model), torch.zeros(VOCAB, VOCAB)
    for s, v in product(range(VOCAB), repeat=2):
        both = [
            start[y] * says[y, s] * transition[y, z] * says[z, v]
            for y, z in product(range(3), repeat=2)
        ]
        before = [start[y] * says[y, s] for y in range(3)]
        expected[s, v] = torch.stack(both).sum() / torch.stack(before).sum()
    assert_close(bigram(model), expected.detach(), CLOSE, "P(v | s)")


def test_bigram_crf_equals_enumeration_of_its_chain() -> None:
    """Uniform initial z, then exp φ[z, z'], normalised over the whole chain."""
    model = small("bigram_latent_crf")
    phi = model.potentials(model.embedding.weight).view(VOCAB, 3, 3).exp().detach()
    reached = phi.sum(1) / phi.sum((1, 2))[:, None]
    assert_close(bigram(model), reached @ words(model), CLOSE, "P(v | s)")


@pytest.mark.parametrize("norm", list(Norm))
def test_trigram_crf_equals_enumeration_of_its_chain(norm: Norm) -> None:
    """The vector before `<start>` is 1 with every norm."""
    model = small("trigram_latent_crf", norm=norm)
    x = normalise_vectors(model.embedding.weight, norm)
    phi = model.potentials(torch.cat([x, torch.ones(1, 4)])).view(-1, 3, 3).exp().detach()
    k = normalise_vectors(model.words.means, norm)
    says = torch.softmax(k @ model.embedding.weight.T, dim=1).detach()
    tokens, _ = every_sequence(model.task)
    padded = torch.nn.functional.pad(tokens, (1, 0), value=VOCAB)
    for t in range(1, LENGTH):
        first, second = phi[padded[:, t - 1]], phi[padded[:, t]]
        alpha = first.sum(1) / first.sum((1, 2))[:, None]
        reached = torch.einsum("bz,bzy->by", alpha, second)
        expected = (reached / reached.sum(1, keepdim=True)) @ says
        assert_close(
            next_log_prob(model, tokens[:, :t]).exp(), expected, CLOSE, f"after {t} tokens"
        )


@pytest.mark.parametrize("name", [*BIGRAMS, "trigram_latent_crf", "lagged_aggregate_markov"])
def test_posterior_follows_bayes_rule(name: str) -> None:
    """P(z | s_t, s_<t) ∝ P(z | s_<t) P(s_t | z)."""
    model = small(name)
    tokens, lengths = batch(model.task)
    joint = model.log_weights(tokens[:, :-1]).exp() * words(model).T[tokens[:, 1:]]
    expected = (joint / joint.sum(-1, keepdim=True)).transpose(1, 2)
    assert_close(model.posterior(tokens, lengths).detach(), expected.detach(), CLOSE, "posterior")


ALIGNED = ["latent_parent_positional", "latent_parent_typed", "aligned_aggregate_markov"]
PREVIOUS = NEVER * (1 - torch.eye(LENGTH).roll(1, 1))
"""Alignment logits Λ with all mass on a = t-1."""


def test_uniform_prior_covers_the_existing_tokens_of_the_window() -> None:
    prior = small("latent_parent_uniform", window=3).prior()
    expected = torch.tensor(
        [[1, 1 / 2, 1 / 3, 0], [0, 1 / 2, 1 / 3, 1 / 3], [0, 0, 1 / 3, 1 / 3], [0, 0, 0, 1 / 3]]
    )
    assert prior is not None
    assert_close(prior.exp(), expected, CLOSE, "P(a | t)")


@pytest.mark.parametrize("types", [1, 3])
@pytest.mark.parametrize("arcs", ["shared", "positional"])
def test_equal_arc_types_are_the_untyped_model(types: int, arcs: str) -> None:
    typed = small("latent_parent_typed", types=types, arcs=arcs)
    plain = small("latent_parent_positional")
    copy_weights(typed, plain, "embedding.weight", "alignment.logits")
    weight, bias = plain.transition.weight, plain.transition.bias
    set_weights(typed, {"transition.weight": weight.repeat(types, 1)})
    set_weights(typed, {"transition.bias": bias.repeat(types)})
    assert_same_model(typed, plain)


def test_latent_index_of_typed_arcs_is_parent_times_types_plus_type() -> None:
    """With all mass on type 1 of the previous token, the posterior is at its index."""
    model = small("latent_parent_typed", types=2, arcs="positional")
    set_weights(model, {"alignment.logits": PREVIOUS})
    chosen = torch.full((2, LENGTH, LENGTH), NEVER)
    chosen[1] = ALWAYS
    set_weights(model, {"types": chosen})
    posterior = model.posterior(*batch(model.task))  # B, a R + r, t
    assert posterior.argmax(1)[0].tolist() == [2 * a + 1 for a in range(LENGTH - 1)]


@pytest.mark.parametrize("norm", list(Norm))
def test_aligned_scores_equal_the_explicit_sum(norm: Norm) -> None:
    """Compute Σ_a P(a | t) Σ_z P(z | s_a) P(s_t | z) term by term."""
    model = small("aligned_aggregate_markov", norm=norm)
    tokens, lengths = batch(model.task)
    table = model.embedding.weight
    words = torch.softmax(normalise_vectors(model.words.means, norm) @ table.T, dim=1)
    classes = torch.softmax(model.gate(table), dim=1)
    actual = log_prob(model, tokens, torch.full_like(lengths, LENGTH)).exp()
    for b, t in torch.cartesian_prod(torch.arange(len(tokens)), torch.arange(1, LENGTH)).tolist():
        s = tokens[b].tolist()
        prior = torch.softmax(model.alignment.logits[:t, t], dim=0)
        terms = [prior[a] * classes[s[a], z] * words[z, s[t]] for a in range(t) for z in range(3)]
        assert_close(actual[b, t], torch.stack(terms).sum().detach(), CLOSE, f"P(s_{t})")


SIZES = {"batch": 5, "length": 13, "components": 7}


def terms(model: LanguageModel, s: list[int], t: int) -> Tensor:
    """Return P(i, j, s_t | s_<t) for all i, j < t as a (t, t) matrix."""
    table = model.embedding.weight
    words = torch.softmax(model.words.means @ table.T, dim=1)
    prior = torch.softmax(model.pairs[:t, :t, t].flatten(), dim=0).view(t, t)
    joint = torch.zeros(t, t)
    for i in range(t):
        for j in range(t):
            logits = model.first(table[s[i]]) + model.second(table[s[j]])
            classes = torch.softmax(logits, dim=0)
            joint[i, j] = prior[i, j] * sum(classes[z] * words[z, s[t]] for z in range(3))
    return joint.detach()


def test_scores_and_posterior_equal_explicit_sums() -> None:
    model = small("two_parent_aggregate_markov")
    tokens, lengths = batch(model.task)
    lengths = torch.full_like(lengths, LENGTH)
    scores, posterior = log_prob(model, tokens, lengths), model.posterior(tokens, lengths)
    for b, s in enumerate(tokens.tolist()):
        for t in range(1, LENGTH):
            joint = terms(model, s, t)
            assert_close(scores[b, t].exp(), joint.sum(), CLOSE, f"P(s_{t})")
            expected = joint.sum(0) / joint.sum()
            assert_close(posterior[b, :t, t - 1].detach(), expected, CLOSE, f"P(j | s_{t})")
            assert not posterior[b, t:, t - 1].any()


def test_largest_tensor_has_at_most_b_t2_k_elements() -> None:
    count, length, components = SIZES.values()
    model = tiny("two_parent_aggregate_markov", length=length, components=components)
    tokens, lengths = batch(model.task, count=count)
    with LargestTensorMode() as largest:
        model.log_prob(tokens, lengths).sum().backward()
    assert largest.max_numel <= count * (length - 1) ** 2 * components
