"""PCFG: the probability of a sentence is the sum over all its labelled trees."""

from itertools import pairwise

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.errors import UserError
from lmzoo.models.grammar.bracketing import (
    all_bracketings,
    bracketing_log_prob,
    catalan,
    draw_bracketing,
    estimate_log_prob,
)
from tests.models.grammars import (
    add_start_and_end,
    all_sentences,
    all_trees,
    tiny_pcfg,
    tree_log_prob,
)

WORDS = torch.tensor([[0, 3, 1, 4, 0], [4, 4, 1, 0, 3]])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_inside_probability_is_the_sum_over_all_labelled_trees(n):
    model = tiny_pcfg()
    words, grammar = WORDS[:, :n], model.grammar()
    for sentence, actual in zip(words, model.sentence_log_prob(words), strict=True):
        listed = torch.stack(
            [tree_log_prob(tree, sentence, grammar) for tree in all_trees(n, 2, 2)]
        )
        torch.testing.assert_close(actual, torch.logsumexp(listed, 0))


def test_inside_probability_of_five_words():
    model = tiny_pcfg(labels=2, classes=1)
    grammar, sentence = model.grammar(), WORDS[0]
    listed = torch.stack([tree_log_prob(tree, sentence, grammar) for tree in all_trees(5, 2, 1)])
    actual = model.sentence_log_prob(sentence[None])[0]
    torch.testing.assert_close(actual, torch.logsumexp(listed, 0))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_scores_of_a_sentence_sum_to_its_inside_probability(n):
    model = tiny_pcfg()
    words = all_sentences(model, n)[:40]
    scores = model.log_prob(add_start_and_end(words), torch.full((len(words),), n + 2))
    torch.testing.assert_close(scores.sum(1), model.sentence_log_prob(words))


def test_mass_of_short_sentences_increases_with_length_and_stays_below_one():
    model = tiny_pcfg(vocab=4)
    mass = [model.grammar().root[0].exp().item()]
    for n in range(1, 7):
        mass.append(mass[-1] + model.sentence_log_prob(all_sentences(model, n)).exp().sum().item())
    assert all(a < b for a, b in pairwise(mass))
    assert mass[-1] < 1


def test_mass_of_a_grammar_without_recursion_is_one():
    """If all children are preterminals, sentences have at most two words."""
    model = tiny_pcfg(vocab=4)
    with torch.no_grad():
        model.rules[:, :2] = model.rules[:, :, :2] = -100.0
    shorter = [model.sentence_log_prob(all_sentences(model, n)).exp().sum() for n in (1, 2)]
    total = model.grammar().root[0].exp() + sum(shorter)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_rule_gradient_is_the_expected_count_minus_the_normalised_count():
    model = tiny_pcfg()
    grammar, sentence = model.grammar(), WORDS[0, :4]
    forest = list(all_trees(4, 2, 2))
    posterior = torch.softmax(torch.stack([tree_log_prob(t, sentence, grammar) for t in forest]), 0)
    counts = torch.zeros_like(grammar.rules)
    for (_, rules, _), weight in zip(forest, posterior.detach(), strict=True):
        for rule in rules:
            counts[rule] += weight
    expected = counts - counts.sum((1, 2), keepdim=True) * grammar.rules.detach().exp()
    model.sentence_log_prob(sentence[None]).sum().backward()
    torch.testing.assert_close(model.rules.grad, expected)


def test_bracketings_are_counted_by_catalan_and_sum_to_the_inside_probability():
    model, n = tiny_pcfg(), 5
    every = list(all_bracketings(0, n))
    assert len(set(every)) == len(every) == catalan(n - 1) == 14
    scores = torch.stack([bracketing_log_prob(b, WORDS, model.grammar()) for b in every])
    torch.testing.assert_close(torch.logsumexp(scores, 0), model.sentence_log_prob(WORDS))


def test_bracketings_are_drawn_uniformly():
    generator = torch.Generator().manual_seed(0)
    every, draws = list(all_bracketings(0, 5)), 2800
    drawn = [draw_bracketing(0, 5, generator) for _ in range(draws)]
    expected = draws / len(every)
    chi2 = sum((drawn.count(b) - expected) ** 2 / expected for b in every)
    assert chi2 < 34.5, "0.999 quantile of chi-square with 13 degrees of freedom"


def test_tree_sampling_estimate_converges():
    model = tiny_pcfg()
    actual = estimate_log_prob(WORDS, model.grammar(), 600, torch.Generator().manual_seed(1))
    torch.testing.assert_close(actual, model.sentence_log_prob(WORDS), atol=0.1, rtol=0)


def test_vocabulary_without_end_is_refused():
    with pytest.raises(UserError, match="vocab=2"):
        zoo.build(zoo.config("pcfg"), Task(vocab=2, length=4))
