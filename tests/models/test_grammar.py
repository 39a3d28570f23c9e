"""PCFG: probabilities are sums over all labelled trees."""

from collections import Counter

import pytest
import torch
from scipy import stats

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import END, START, Task
from lmzoo.functional.inside import initial_spans, inside, prefix_chart
from lmzoo.models.grammar import (
    PCFG,
    bracketing_log_prob,
    catalan,
    draw_bracketing,
    estimate_log_prob,
    leaf_scores,
)
from tests.cases import parametrize
from tests.largest_tensor import LargestTensorMode

# A tree is its root label, its rules, and its (preterminal, word position) pairs.
WORDS = torch.tensor([[0, 3, 1, 4, 0], [4, 4, 1, 0, 3]])


def tiny_pcfg(vocab=5, length=6, labels=2, classes=2):
    config = zoo.config("pcfg", nonterminals=labels, preterminals=classes)
    task = Task(vocab=vocab, length=length)
    model = zoo.build(config, task, seed=4)
    assert isinstance(model, PCFG)
    return model.double()


def all_bracketings(first, stop):
    # A single word has one bracketing: itself.
    if stop - first == 1:
        yield first
    for k in range(first + 1, stop):
        for left in all_bracketings(first, k):
            for right in all_bracketings(k, stop):
                yield left, right


def labelled_trees(bracketing, labels, classes):
    """Yield every labelling of a bracketing."""
    if isinstance(bracketing, int):
        for q in range(classes):
            leaf = (q, bracketing)
            yield labels + q, (), (leaf,)
        return
    left, right = bracketing
    for b, left_rules, left_leaves in labelled_trees(left, labels, classes):
        for c, right_rules, right_leaves in labelled_trees(right, labels, classes):
            rules = left_rules + right_rules
            leaves = left_leaves + right_leaves
            for a in range(labels):
                rule = (a, b, c)
                yield a, (rule,) + rules, leaves


def all_trees(words, labels, classes):
    trees = []
    for bracketing in all_bracketings(0, words):
        trees += labelled_trees(bracketing, labels, classes)
    return trees


def tree_log_prob(tree, words, grammar):
    """Return log P(words, tree)."""
    root, rules, leaves = tree
    # The first entry of the root is the empty sentence.
    total = grammar.root[1 + root]
    for rule in rules:
        total = total + grammar.rules[rule]
    for q, position in leaves:
        word = words[position]
        total = total + grammar.emission[q, word]
    return total


def listed_log_probs(trees, words, grammar):
    """Return log P(words, tree) of every tree."""
    scores = [tree_log_prob(tree, words, grammar) for tree in trees]
    return torch.stack(scores)


def all_sentences(model, words):
    """Return every string of `words` words (all ids but `<end>`)."""
    ids = set(range(model.task.vocab)) - {END}
    choices = [torch.tensor(sorted(ids))] * words
    product = torch.cartesian_prod(*choices)
    return product.reshape(-1, words)


# With two classes, five words would have 7,168 trees.
SIZES = [(1, 2), (2, 2), (3, 2), (4, 2), (5, 1)]


@parametrize(("n", "classes"), SIZES)
def test_inside_probability_is_the_sum_over_all_labelled_trees(n, classes):
    model = tiny_pcfg(classes=classes)
    words = WORDS[:, :n]
    grammar = model.grammar()
    trees = all_trees(n, 2, classes)
    found = model.sentence_log_prob(words)
    for sentence, actual in zip(words, found, strict=True):
        listed = listed_log_probs(trees, sentence, grammar)
        expected = torch.logsumexp(listed, 0)
        torch.testing.assert_close(actual, expected)


@parametrize("n", [1, 2, 4])
def test_scores_of_a_sentence_sum_to_its_inside_probability(n):
    model = tiny_pcfg()
    words = all_sentences(model, n)[:40]
    count = len(words)
    start = torch.full((count, 1), START)
    end = torch.full_like(start, END)
    tokens = torch.cat([start, words, end], dim=1)
    lengths = torch.full((count,), n + 2)
    scores = model.log_prob(tokens, lengths)
    actual = scores.sum(1)
    expected = model.sentence_log_prob(words)
    torch.testing.assert_close(actual, expected)


def test_rule_gradient_is_the_expected_count_minus_the_normalised_count():
    model = tiny_pcfg()
    grammar = model.grammar()
    sentence = WORDS[0, :4]
    forest = all_trees(4, 2, 2)
    scores = listed_log_probs(forest, sentence, grammar)
    posterior = torch.softmax(scores, 0).detach()
    counts = torch.zeros_like(grammar.rules)
    for (_, rules, _), weight in zip(forest, posterior, strict=True):
        for rule in rules:
            counts[rule] += weight
    of_label = counts.sum((1, 2), keepdim=True)
    # A softmax takes from each rule what all rules of its label get.
    normalised = of_label * grammar.rules.detach().exp()
    total = model.sentence_log_prob(sentence[None]).sum()
    total.backward()
    expected = counts - normalised
    torch.testing.assert_close(model.rules.grad, expected)


def test_prefix_probability_is_the_mass_of_sentences_with_that_prefix():
    """The grammar has nearly all its mass on sentences of at most eight words."""
    model = tiny_pcfg(vocab=4, classes=1)
    with torch.no_grad():
        # Splits into two nonterminals are rare, so sentences are short.
        model.rules[:, :2, :2] -= 6.0
        model.rules[:, 2, 2] += 4.0
    begin = torch.tensor([0, 3])
    start = torch.tensor([START])
    tokens = torch.cat([start, begin])[None]
    length = torch.tensor([3])
    scores = model.log_prob(tokens, length)
    prefix = scores.sum().exp()
    mass = torch.zeros(())
    # Sentences of two to eight words.
    for n in range(2, 9):
        words = all_sentences(model, n)
        first_words = words[:, :2]
        begun = (first_words == begin).all(1)
        log_p = model.sentence_log_prob(words[begun])
        mass = mass + log_p.exp().sum()
    torch.testing.assert_close(mass, prefix, atol=2e-4, rtol=0)
    assert mass < prefix


class Charts:
    """Total, gradient, elements saved for the backward pass, and the largest tensor."""

    def __init__(self, limit):
        model = tiny_pcfg(vocab=9, labels=3, classes=9)
        torch.manual_seed(0)
        words = torch.randint(3, 9, (4, 16))
        grammar = model.grammar()
        log_leaves = leaf_scores(grammar, words)
        self.kept = {}
        # Called for each tensor that is saved.
        hooks = torch.autograd.graph.saved_tensors_hooks(self.keep, lambda x: x)
        with LargestTensorMode() as largest, hooks:
            chart = inside(log_leaves, grammar.rules, limit)
            begun = prefix_chart(log_leaves, grammar.rules, chart, limit)
        both = initial_spans(chart) + initial_spans(begun)
        spans = both[:, 1:, :2]
        self.total = spans.sum()
        (self.gradient,) = torch.autograd.grad(self.total, model.rules)
        self.saved = sum(self.kept.values())
        self.largest = largest.max_numel

    def keep(self, x):
        storage = x.untyped_storage()
        # Two tensors may be views of one memory, which is counted once.
        place = storage.data_ptr()
        self.kept[place] = storage.nbytes() // x.itemsize
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
    scores = [bracketing_log_prob(shape, WORDS, grammar) for shape in SHAPES]
    exact = model.sentence_log_prob(WORDS)
    actual = torch.logsumexp(torch.stack(scores), 0)
    torch.testing.assert_close(actual, exact)


def test_bracketings_are_drawn_uniformly():
    generator = torch.Generator().manual_seed(0)
    drawn = Counter(draw_bracketing(0, 5, generator) for _ in range(2800))
    # 200 of each are expected.
    counts = [drawn[shape] for shape in SHAPES]
    assert stats.chisquare(counts).pvalue > 1e-3


def test_the_mean_over_drawn_bracketings_estimates_the_probability():
    model = tiny_pcfg()
    generator = torch.Generator().manual_seed(0)
    grammar = model.grammar()
    estimate = estimate_log_prob(WORDS, grammar, 600, generator)
    exact = model.sentence_log_prob(WORDS)
    torch.testing.assert_close(estimate, exact, atol=0.1, rtol=0)


def test_a_vocabulary_without_end_is_refused():
    config = zoo.config("pcfg")
    task = Task(vocab=2, length=4)
    with pytest.raises(UserError, match="vocab=2"):
        zoo.build(config, task)
