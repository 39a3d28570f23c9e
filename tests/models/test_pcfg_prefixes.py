"""The grammar as a causal model: prefix probabilities, and memory that is bounded."""

import pytest
import torch

from lmzoo.contract import END, START
from lmzoo.functional.inside import initial_spans, inside
from lmzoo.functional.prefix import prefix_chart
from lmzoo.functional.semiring import LOG
from lmzoo.models.grammar.pcfg import leaf_scores
from tests.largest_tensor import LargestTensorMode
from tests.models.grammars import ended, sentences, tiny_pcfg


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_prefix_is_its_sentence_or_one_of_its_continuations(n):
    """prefix(w) = inside(w) + Σ_v prefix(w v), whether or not the grammar terminates."""
    model = tiny_pcfg()
    with torch.no_grad():
        model.rules[:, :2, :2] += 3.0  # most derivations of this grammar never end
    tokens = ended(sentences(model, n)[:20])[:, :-1] if n else torch.tensor([[START]])
    dense = model.next_log_prob(tokens)
    torch.testing.assert_close(dense.logsumexp(-1), torch.zeros(len(tokens)).double())


def test_probabilities_of_all_sequences_sum_to_one():
    model = tiny_pcfg(vocab=4, length=5)
    every = torch.cartesian_prod(*[torch.arange(4)] * 4)
    tokens = torch.cat([torch.full((len(every), 1), START), every], dim=1)
    total = model.log_prob(tokens, torch.full((len(every),), 5)).sum(1).exp().sum()
    torch.testing.assert_close(total, torch.ones_like(total))


def test_a_prefix_probability_is_the_mass_of_the_sentences_that_begin_so():
    """For a grammar so right-heavy that eight words hold nearly all its mass."""
    model = tiny_pcfg(vocab=4, classes=1)
    with torch.no_grad():
        model.rules[:, :2, :2] -= 6.0
        model.rules[:, 2, 2] += 4.0
    begin = [0, 3]
    tokens = torch.tensor([[START, *begin]])
    prefix = model.log_prob(tokens, torch.tensor([3])).sum().exp()
    mass = torch.zeros(())
    for n in range(2, 9):
        words = sentences(model, n)
        words = words[(words[:, :2] == torch.tensor(begin)).all(1)]
        mass = mass + model.sentence_log_prob(words).exp().sum()
    torch.testing.assert_close(mass, prefix, atol=2e-4, rtol=0)
    assert mass < prefix


def test_dense_scores_agree_with_the_scores_of_tokens_and_stay_finite_after_an_end():
    model = tiny_pcfg(vocab=5)
    tokens = torch.tensor(
        [[START, 3, 0, 4, 4, 1], [START, 4, END, 3, END, 0], [START, END, 0, 1, 3, 3]]
    )
    scores = model.log_prob(tokens, torch.full((3,), 6))
    assert scores.isfinite().all()
    for t in range(1, 6):
        dense = model.next_log_prob(tokens[:, :t])
        torch.testing.assert_close(dense.gather(1, tokens[:, t : t + 1])[:, 0], scores[:, t])


def test_long_sentences_over_many_words_neither_vanish_nor_lose_their_gradient():
    model = tiny_pcfg(vocab=5000, length=60).float()
    tokens = torch.randint(3, 5000, (2, 60), generator=torch.Generator().manual_seed(0))
    scores = model.log_prob(tokens, torch.tensor([60, 60]))
    double = model.double().log_prob(tokens, torch.tensor([60, 60]))
    torch.testing.assert_close(scores.double(), double, atol=2e-3, rtol=0)
    double.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def _charts(model, words, limit):
    """Total, gradient, numbers kept for the way back, the largest tensor."""
    grammar = model.grammar()
    log_leaves, kept = leaf_scores(grammar, words), {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.itemsize
        return x

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x)
    with LargestTensorMode() as largest, hooks:
        chart = inside(log_leaves, grammar.rules, LOG, limit)
        begun = prefix_chart(log_leaves, grammar.rules, chart, limit)
    total = (initial_spans(chart)[:, 1:, :2] + initial_spans(begun)[:, 1:, :2]).sum()
    (gradient,) = torch.autograd.grad(total, model.rules)
    return total, gradient, sum(kept.values()), largest.max_numel


def test_pieces_bound_memory_and_change_neither_values_nor_gradients():
    model = tiny_pcfg(vocab=9, labels=3, classes=9)
    words = torch.randint(3, 9, (4, 16), generator=torch.Generator().manual_seed(0))
    whole, piecewise = (_charts(model, words, limit) for limit in (1 << 24, 1500))
    torch.testing.assert_close(piecewise[0], whole[0])
    torch.testing.assert_close(piecewise[1], whole[1])
    assert piecewise[2] < whole[2] / 4
    assert piecewise[3] < whole[3] / 4


def test_what_is_kept_grows_with_spans_not_with_splits():
    """Twice the words: four times the spans, eight times the splits."""
    model = tiny_pcfg(vocab=9, labels=1, classes=1)
    words = torch.randint(3, 9, (1, 24), generator=torch.Generator().manual_seed(0))
    kept = [_charts(model, words[:, :n], 100)[2] for n in (12, 24)]
    assert kept[1] < 5 * kept[0]
