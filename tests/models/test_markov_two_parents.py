"""Two-parent aggregate Markov model: explicit sums, symmetry and memory (DLM14)."""

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from tests.largest_tensor import LargestTensorMode
from tests.laws.support import assert_close, log_prob
from tests.models.equivalence import (
    LENGTH,
    NEVER,
    assert_same_model,
    copy_weights,
    set_weights,
    small,
)
from tests.tiny import CLOSE, batch, tiny

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


def test_zero_second_parent_is_the_aggregate_markov_model() -> None:
    """A' = 0, a' = 0, and all prior mass of the first parent on t-1."""
    two, plain = small("two_parent_aggregate_markov"), small("aggregate_markov")
    copy_weights(two, plain, "embedding.weight", "words.means")
    copy_weights(two, plain, "gate.weight:first.weight", "gate.bias:first.bias")
    previous = NEVER * (1 - torch.eye(LENGTH).roll(1, 1))  # i, t
    set_weights(two, {"second.weight": 0.0, "second.bias": 0.0})
    set_weights(two, {"pairs": two.pairs + previous[:, None]})
    assert_same_model(two, plain)


def test_swapping_both_parents_and_their_parameters_changes_nothing() -> None:
    original, swapped = (small("two_parent_aggregate_markov"), small("two_parent_aggregate_markov"))
    for ours, theirs in (("first", "second"), ("second", "first")):
        copy_weights(
            swapped, original, f"{ours}.weight:{theirs}.weight", f"{ours}.bias:{theirs}.bias"
        )
    set_weights(swapped, {"pairs": original.pairs.transpose(0, 1)})
    assert_same_model(original, swapped)


def test_symmetric_model_has_equal_posteriors_of_both_parents() -> None:
    model = small("two_parent_aggregate_markov")
    copy_weights(model, model, "first.weight:second.weight", "first.bias:second.bias")
    set_weights(model, {"pairs": model.pairs + model.pairs.transpose(0, 1)})
    tokens, lengths = batch(model.task)
    posterior = model.posterior(tokens, torch.full_like(lengths, LENGTH))
    joint = terms(model, tokens[0].tolist(), LENGTH - 1)
    assert_close(
        posterior[0, :, -1].detach(), joint.sum(1) / joint.sum(), CLOSE, "the first parent's"
    )


def test_largest_tensor_has_at_most_b_t2_k_elements() -> None:
    count, length, components = SIZES.values()
    model = tiny("two_parent_aggregate_markov", length=length, components=components)
    tokens, lengths = batch(model.task, count=count)
    with LargestTensorMode() as largest:
        model.log_prob(tokens, lengths).sum().backward()
    assert largest.max_numel <= count * (length - 1) ** 2 * components
