"""Models with one parent: limits, priors and posteriors (DLM2, 5, 6, 13, 25)."""

import pytest
import torch

from lmzoo.contract import Task
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.limits import ALWAYS, LENGTH, NEVER, copied, put, reorder, row, same_model, sees
from tests.tiny import CLOSE, batch, every_sequence

LOG_BILINEAR = ("embedding.weight", "transition.weight", "transition.bias")
CLASSES = ("embedding.weight", "gate.weight", "gate.bias", "words.means")
ALIGNED = ["latent_parent_positional", "latent_parent_typed", "aligned_aggregate_markov"]

PREVIOUS = NEVER * (1 - torch.eye(LENGTH).roll(1, 1))
"""Λ with all mass on a = t-1."""


@pytest.mark.parametrize("window", [1, 2, 3, None])
def test_a_uniform_parent_is_within_the_window(window: int | None) -> None:
    expected = [window is None or back <= window for back in (1, 2, 3)]
    assert sees(row("latent_parent_uniform", window=window)) == expected


def test_a_window_of_one_is_the_log_bilinear_bigram() -> None:
    parents = row("latent_parent_uniform", window=1)
    plain = row("ngram_log_bilinear", window=1)
    copied(parents, plain, *LOG_BILINEAR)
    same_model(parents, plain)


def test_a_window_over_the_whole_prefix_has_no_order() -> None:
    model = row("latent_parent_uniform", window=4)
    prefix = every_sequence(model.task)[0][:, :4]
    for order in ([1, 0, 2], [2, 1, 0]):
        moved = reorder(prefix, torch.tensor(order), at=1)
        assert_close(next_log_prob(model, moved), next_log_prob(model, prefix), CLOSE, "reordered")


def test_the_prior_of_the_window_is_even_over_what_there_is() -> None:
    prior = row("latent_parent_uniform", window=3).prior()
    expected = torch.tensor(
        [[1, 1 / 2, 1 / 3, 0], [0, 1 / 2, 1 / 3, 1 / 3], [0, 0, 1 / 3, 1 / 3], [0, 0, 0, 1 / 3]]
    )
    assert prior is not None
    assert_close(prior.exp(), expected, CLOSE, "P(a | t)")


def test_all_mass_on_the_previous_token_is_the_bigram() -> None:
    parents, bigram = row("latent_parent_positional"), row("interpolated_bigram")
    copied(parents, bigram, *LOG_BILINEAR)
    put(parents, {"alignment.logits": PREVIOUS})
    put(bigram, {"weights.logits": torch.tensor([NEVER, ALWAYS])})
    same_model(parents, bigram)


def test_a_constant_alignment_is_the_uniform_parent() -> None:
    learned, even = row("latent_parent_positional"), row("latent_parent_uniform", window=None)
    copied(learned, even, *LOG_BILINEAR)
    put(learned, {"alignment.logits": 0.7})
    same_model(learned, even)


@pytest.mark.parametrize("name", ALIGNED)
def test_a_constant_added_to_a_child_changes_nothing(name: str) -> None:
    one, other = row(name), row(name)
    put(other, {"alignment.logits": one.alignment.logits + torch.randn(1, LENGTH)})
    same_model(one, other)


@pytest.mark.parametrize("name", [*ALIGNED, "latent_parent_uniform", "two_parent_aggregate_markov"])
def test_the_prior_sums_to_one_over_earlier_tokens_only(name: str) -> None:
    prior = row(name).prior()
    assert prior is not None
    by_parent = prior.exp().unflatten(0, (LENGTH - 1, -1)).sum(1)
    assert_close(by_parent.sum(0), torch.ones(LENGTH - 1), CLOSE, "P(a | t)")
    assert not by_parent.tril(-1).any()
    assert by_parent.diagonal().all()  # the previous token is always a candidate


@pytest.mark.parametrize("name", [*ALIGNED, "two_parent_aggregate_markov"])
def test_sequences_longer_than_the_prior_are_refused(name: str) -> None:
    model = row(name)
    tokens, lengths = batch(Task(vocab=3, length=LENGTH + 1))
    with pytest.raises(UserError, match=f"over {LENGTH} positions cannot score a token after 5"):
        model.log_prob(tokens, lengths)
    with pytest.raises(UserError, match="at most 5 tokens"):
        model.next_log_prob(tokens[:, :LENGTH])


@pytest.mark.parametrize("types", [1, 3])
@pytest.mark.parametrize("arcs", ["shared", "positional"])
def test_arcs_of_one_kind_are_no_types_at_all(types: int, arcs: str) -> None:
    typed = row("latent_parent_typed", types=types, arcs=arcs)
    plain = row("latent_parent_positional")
    copied(typed, plain, "embedding.weight", "alignment.logits")
    weight, bias = plain.transition.weight, plain.transition.bias
    put(typed, {"transition.weight": weight.repeat(types, 1)})
    put(typed, {"transition.bias": bias.repeat(types)})
    same_model(typed, plain)


def test_types_that_ignore_positions_are_shared() -> None:
    shared, free = (row("latent_parent_typed", arcs=arcs) for arcs in ("shared", "positional"))
    copied(free, shared, *LOG_BILINEAR, "alignment.logits")
    put(free, {"types": shared.types.expand(2, LENGTH, LENGTH)})
    same_model(shared, free)


def test_the_latent_of_typed_arcs_is_parent_major() -> None:
    """One type of one parent, and the posterior knows which."""
    model = row("latent_parent_typed", types=2, arcs="positional")
    put(model, {"alignment.logits": PREVIOUS})
    chosen = torch.full((2, LENGTH, LENGTH), NEVER)
    chosen[1] = ALWAYS
    put(model, {"types": chosen})
    posterior = model.posterior(*batch(model.task))  # B, a R + r, t
    assert posterior.argmax(1)[0].tolist() == [2 * a + 1 for a in range(LENGTH - 1)]


def test_aligned_on_the_previous_token_is_the_aggregate_markov_model() -> None:
    aligned, plain = row("aligned_aggregate_markov"), row("aggregate_markov")
    copied(aligned, plain, *CLASSES)
    put(aligned, {"alignment.logits": PREVIOUS})
    same_model(aligned, plain)


@pytest.mark.parametrize("components", [1, 2])
def test_the_rank_of_aligned_classes_is_bounded(components: int) -> None:
    """P(v | s_a) factors through K classes; with one class it is a unigram."""
    model = row("aligned_aggregate_markov", components=components)
    each = model.child_scores(torch.arange(3)[None])[0].exp()
    values = torch.linalg.svdvals(each.detach())
    assert (values > 1e-5).sum() <= components
    assert values[components - 1] > 1e-3


@pytest.mark.parametrize("norm", ["rms", "std"])
def test_components_already_on_the_sphere_need_no_sphere(norm: str) -> None:
    sphere = row("aligned_aggregate_markov_sphere", norm=norm)
    plain = row("aligned_aggregate_markov")
    copied(plain, sphere, *CLASSES, "alignment.logits")
    put(plain, {"words.means": normalise_vectors(sphere.words.means, Norm(norm))})
    same_model(sphere, plain)


def test_aligned_classes_equal_their_sums() -> None:
    """Σ_a P(a | t) Σ_z P(z | s_a) P(s_t | z), one term after another."""
    model = row("aligned_aggregate_markov")
    tokens, lengths = batch(model.task)
    table = model.embedding.weight
    words = torch.softmax(model.words.means @ table.T, dim=1)
    classes = torch.softmax(model.gate(table), dim=1)
    found = log_prob(model, tokens, torch.full_like(lengths, LENGTH)).exp()
    for b, t in torch.cartesian_prod(torch.arange(len(tokens)), torch.arange(1, LENGTH)).tolist():
        s = tokens[b].tolist()
        prior = torch.softmax(model.alignment.logits[:t, t], dim=0)
        terms = [prior[a] * classes[s[a], z] * words[z, s[t]] for a in range(t) for z in range(3)]
        assert_close(found[b, t], torch.stack(terms).sum().detach(), CLOSE, f"P(s_{t})")
