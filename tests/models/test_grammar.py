"""PCFG: probabilities are sums over all labelled trees."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from scipy import stats
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import END, START, Task
from lmzoo.functional.inside import initial_spans, inside, prefix_chart
from lmzoo.models.grammar import (
    PCFG,
    Bracketing,
    LogGrammar,
    bracketing_log_prob,
    catalan,
    draw_bracketing,
    estimate_log_prob,
    leaf_scores,
)
from tests.largest_tensor import LargestTensorMode

Tree = tuple[int, tuple[tuple[int, int, int], ...], tuple[tuple[int, int], ...]]
"""Root label, rules, and (preterminal, word position) pairs of a tree."""
WORDS = torch.tensor([[0, 3, 1, 4, 0], [4, 4, 1, 0, 3]])


def tiny_pcfg(vocab: int = 5, length: int = 6, labels: int = 2, classes: int = 2) -> PCFG:
    config = zoo.config("pcfg", nonterminals=labels, preterminals=classes)
    model = zoo.build(config, Task(vocab=vocab, length=length), seed=4)
    assert isinstance(model, PCFG)
    return model.double()


def all_bracketings(first: int, stop: int) -> Iterator[Bracketing]:
    if stop - first == 1:
        yield first
    for k in range(first + 1, stop):
        for left in all_bracketings(first, k):
            for right in all_bracketings(k, stop):
                yield left, right


def labelled_trees(bracketing: Bracketing, labels: int, classes: int) -> Iterator[Tree]:
    """Yield every labelling of a bracketing."""
    if isinstance(bracketing, int):
        for q in range(classes):
            yield labels + q, (), ((q, bracketing),)
        return
    left, right = bracketing
    for b, left_rules, left_leaves in labelled_trees(left, labels, classes):
        for c, right_rules, right_leaves in labelled_trees(right, labels, classes):
            leaves = left_leaves + right_leaves
            for a in range(labels):
                yield a, ((a, b, c), *left_rules, *right_rules), leaves


def all_trees(words: int, labels: int, classes: int) -> list[Tree]:
    trees = []
    for bracketing in all_bracketings(0, words):
        trees += labelled_trees(bracketing, labels, classes)
    return trees


def tree_log_prob(tree: Tree, words: Tensor, grammar: LogGrammar) -> Tensor:
    """Return log P(words, tree)."""
    root, rules, leaves = tree
    total = grammar.root[1 + root]
    for rule in rules:
        total = total + grammar.rules[rule]
    for q, position in leaves:
        total = total + grammar.emission[q, words[position]]
    return total


def all_sentences(model: PCFG, words: int) -> Tensor:
    """Return every string of `words` words (all ids but `<end>`)."""
    ids = torch.tensor([v for v in range(model.task.vocab) if v != END])
    return torch.cartesian_prod(*[ids] * words).reshape(-1, words)


@pytest.mark.parametrize(("n", "classes"), [(1, 2), (2, 2), (3, 2), (4, 2), (5, 1)])
def test_inside_probability_is_the_sum_over_all_labelled_trees(n, classes):
    model = tiny_pcfg(classes=classes)
    words = WORDS[:, :n]
    grammar = model.grammar()
    trees = all_trees(n, 2, classes)
    for sentence, actual in zip(words, model.sentence_log_prob(words), strict=True):
        listed = torch.stack([tree_log_prob(tree, sentence, grammar) for tree in trees])
        torch.testing.assert_close(actual, torch.logsumexp(listed, 0))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_scores_of_a_sentence_sum_to_its_inside_probability(n):
    model = tiny_pcfg()
    words = all_sentences(model, n)[:40]
    edge = torch.ones(len(words), 1, dtype=torch.long)
    tokens = torch.cat([START * edge, words, END * edge], dim=1)
    scores = model.log_prob(tokens, torch.full((len(words),), n + 2))
    torch.testing.assert_close(scores.sum(1), model.sentence_log_prob(words))


def test_rule_gradient_is_the_expected_count_minus_the_normalised_count():
    model = tiny_pcfg()
    grammar = model.grammar()
    sentence = WORDS[0, :4]
    forest = all_trees(4, 2, 2)
    scores = torch.stack([tree_log_prob(tree, sentence, grammar) for tree in forest])
    posterior = torch.softmax(scores, 0).detach()
    counts = torch.zeros_like(grammar.rules)
    for (_, rules, _), weight in zip(forest, posterior, strict=True):
        for rule in rules:
            counts[rule] += weight
    of_label = counts.sum((1, 2), keepdim=True)
    expected = counts - of_label * grammar.rules.detach().exp()
    model.sentence_log_prob(sentence[None]).sum().backward()
    torch.testing.assert_close(model.rules.grad, expected)


def test_prefix_probability_is_the_mass_of_sentences_with_that_prefix():
    """The grammar has nearly all its mass on sentences of at most eight words."""
    model = tiny_pcfg(vocab=4, classes=1)
    with torch.no_grad():
        # Splits into two nonterminals are rare, so sentences are short.
        model.rules[:, :2, :2] -= 6.0
        model.rules[:, 2, 2] += 4.0
    begin = [0, 3]
    tokens = torch.tensor([[START, *begin]])
    prefix = model.log_prob(tokens, torch.tensor([3])).sum().exp()
    mass = torch.zeros(())
    for n in range(2, 9):
        words = all_sentences(model, n)
        begun = (words[:, :2] == torch.tensor(begin)).all(1)
        mass = mass + model.sentence_log_prob(words[begun]).exp().sum()
    torch.testing.assert_close(mass, prefix, atol=2e-4, rtol=0)
    assert mass < prefix


class Charts:
    """Total, gradient, elements saved for the backward pass, and the largest tensor."""

    def __init__(self, limit):
        model = tiny_pcfg(vocab=9, labels=3, classes=9)
        words = torch.randint(3, 9, (4, 16), generator=torch.Generator().manual_seed(0))
        grammar = model.grammar()
        log_leaves = leaf_scores(grammar, words)
        self.kept = {}
        hooks = torch.autograd.graph.saved_tensors_hooks(self.keep, lambda x: x)
        with LargestTensorMode() as largest, hooks:
            chart = inside(log_leaves, grammar.rules, limit)
            begun = prefix_chart(log_leaves, grammar.rules, chart, limit)
        both = initial_spans(chart) + initial_spans(begun)
        self.total = both[:, 1:, :2].sum()
        (self.gradient,) = torch.autograd.grad(self.total, model.rules)
        self.saved = sum(self.kept.values())
        self.largest = largest.max_numel

    def keep(self, x):
        storage = x.untyped_storage()
        self.kept[storage.data_ptr()] = storage.nbytes() // x.itemsize
        return x


@pytest.fixture(scope="module")
def whole():
    return Charts(1 << 24)


@pytest.fixture(scope="module")
def piecewise():
    return Charts(1500)


def test_chunks_do_not_change_values_or_gradients(whole, piecewise):
    torch.testing.assert_close(piecewise.total, whole.total)
    torch.testing.assert_close(piecewise.gradient, whole.gradient)


def test_chunks_limit_memory(whole, piecewise):
    assert piecewise.saved < whole.saved / 4
    assert piecewise.largest < whole.largest / 4


SHAPES = list(all_bracketings(0, 5))


def test_the_bracketings_of_five_words_are_counted_by_catalan():
    assert len(set(SHAPES)) == len(SHAPES)
    assert catalan(4) == len(SHAPES) == 14


def test_the_probability_of_a_sentence_is_the_sum_over_bracketings():
    model = tiny_pcfg()
    grammar = model.grammar()
    scores = torch.stack([bracketing_log_prob(shape, WORDS, grammar) for shape in SHAPES])
    exact = model.sentence_log_prob(WORDS)
    torch.testing.assert_close(torch.logsumexp(scores, 0), exact)


def test_bracketings_are_drawn_uniformly():
    generator = torch.Generator().manual_seed(0)
    drawn = Counter(draw_bracketing(0, 5, generator) for _ in range(2800))
    assert stats.chisquare([drawn[shape] for shape in SHAPES]).pvalue > 1e-3


def test_the_mean_over_drawn_bracketings_estimates_the_probability():
    model = tiny_pcfg()
    generator = torch.Generator().manual_seed(0)
    estimate = estimate_log_prob(WORDS, model.grammar(), 600, generator)
    exact = model.sentence_log_prob(WORDS)
    torch.testing.assert_close(estimate, exact, atol=0.1, rtol=0)


def test_a_vocabulary_without_end_is_refused():
    with pytest.raises(UserError, match="vocab=2"):
        zoo.build(zoo.config("pcfg"), Task(vocab=2, length=4))
