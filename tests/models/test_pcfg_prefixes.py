"""PCFG as a causal model: prefix probabilities and memory use."""

import pytest
import torch

from lmzoo.contract import END, START
from lmzoo.functional.inside import initial_spans, inside
from lmzoo.functional.prefix import prefix_chart
from lmzoo.functional.semiring import LOG
from lmzoo.models.grammar.pcfg import leaf_scores
from tests.largest_tensor import LargestTensorMode
from tests.models.grammars import add_start_and_end, all_sentences, tiny_pcfg


@pytest.mark.parametrize("n", [0, 1, 3])
def test_prefix_probability_is_the_sentence_plus_its_continuations(n):
    """prefix(w) = inside(w) + Σ_v prefix(w v), for a grammar with infinite derivations."""
    model = tiny_pcfg()
    with torch.no_grad():
        model.rules[:, :2, :2] += 3.0  # most derivations become infinite
    tokens = (
        add_start_and_end(all_sentences(model, n)[:20])[:, :-1] if n else torch.tensor([[START]])
    )
    dense = model.next_log_prob(tokens)
    torch.testing.assert_close(dense.logsumexp(-1), torch.zeros(len(tokens)).double())


def test_probabilities_of_all_sequences_sum_to_one():
    model = tiny_pcfg(vocab=4, length=5)
    every = torch.cartesian_prod(*[torch.arange(4)] * 4)
    tokens = torch.cat([torch.full((len(every), 1), START), every], dim=1)
    total = model.log_prob(tokens, torch.full((len(every),), 5)).sum(1).exp().sum()
    torch.testing.assert_close(total, torch.ones_like(total))


def test_prefix_probability_is_the_mass_of_sentences_with_that_prefix():
    """The grammar has nearly all its mass on sentences of at most eight words."""
    model = tiny_pcfg(vocab=4, classes=1)
    with torch.no_grad():
        model.rules[:, :2, :2] -= 6.0
        model.rules[:, 2, 2] += 4.0
    begin = [0, 3]
    tokens = torch.tensor([[START, *begin]])
    prefix = model.log_prob(tokens, torch.tensor([3])).sum().exp()
    mass = torch.zeros(())
    for n in range(2, 9):
        words = all_sentences(model, n)
        words = words[(words[:, :2] == torch.tensor(begin)).all(1)]
        mass = mass + model.sentence_log_prob(words).exp().sum()
    torch.testing.assert_close(mass, prefix, atol=2e-4, rtol=0)
    assert mass < prefix


def test_next_token_scores_equal_token_scores_and_stay_finite_after_end():
    model = tiny_pcfg(vocab=5)
    tokens = torch.tensor(
        [[START, 3, 0, 4, 4, 1], [START, 4, END, 3, END, 0], [START, END, 0, 1, 3, 3]]
    )
    scores = model.log_prob(tokens, torch.full((3,), 6))
    assert scores.isfinite().all()
    for t in range(1, 6):
        dense = model.next_log_prob(tokens[:, :t])
        torch.testing.assert_close(dense.gather(1, tokens[:, t : t + 1])[:, 0], scores[:, t])


def test_long_sentences_have_finite_scores_and_gradients():
    model = tiny_pcfg(vocab=5000, length=60).float()
    tokens = torch.randint(3, 5000, (2, 60), generator=torch.Generator().manual_seed(0))
    scores = model.log_prob(tokens, torch.tensor([60, 60]))
    double = model.double().log_prob(tokens, torch.tensor([60, 60]))
    torch.testing.assert_close(scores.double(), double, atol=2e-3, rtol=0)
    double.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def _charts(model, words, limit):
    """Return total, gradient, elements saved for the backward pass, and the largest tensor."""
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


def test_chunks_limit_memory_and_do_not_change_values_or_gradients():
    model = tiny_pcfg(vocab=9, labels=3, classes=9)
    words = torch.randint(3, 9, (4, 16), generator=torch.Generator().manual_seed(0))
    whole, piecewise = (_charts(model, words, limit) for limit in (1 << 24, 1500))
    torch.testing.assert_close(piecewise[0], whole[0])
    torch.testing.assert_close(piecewise[1], whole[1])
    assert piecewise[2] < whole[2] / 4
    assert piecewise[3] < whole[3] / 4


def test_saved_memory_grows_with_spans_not_with_splits():
    """Twice the words are four times the spans and eight times the splits."""
    model = tiny_pcfg(vocab=9, labels=1, classes=1)
    words = torch.randint(3, 9, (1, 24), generator=torch.Generator().manual_seed(0))
    kept = [_charts(model, words[:, :n], 100)[2] for n in (12, 24)]
    assert kept[1] < 5 * kept[0]
