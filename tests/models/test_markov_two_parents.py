"""Two-parent aggregate Markov model: explicit sums, symmetry and memory (DLM14)."""

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from tests.largest_tensor import LargestTensorMode
from tests.laws.support import assert_close, log_prob
from tests.models.equivalence import (
    LENGTH,
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


def test_largest_tensor_has_at_most_b_t2_k_elements() -> None:
    count, length, components = SIZES.values()
    model = tiny("two_parent_aggregate_markov", length=length, components=components)
    tokens, lengths = batch(model.task, count=count)
    with LargestTensorMode() as largest:
        model.log_prob(tokens, lengths).sum().backward()
    assert largest.max_numel <= count * (length - 1) ** 2 * components
