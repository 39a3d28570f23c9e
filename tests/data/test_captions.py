"""The captions of a grammar: probabilities, entropy floors, pins."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from math import exp, isclose
from random import Random

import numpy as np
import pytest
from scipy.stats import sem

from lmzoo.contract import END, UNKNOWN
from lmzoo.data.captions import caption_grammar, sample_captions
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.data.grammar import Grammar

CORPUS_NAMES = ("captions", "captions_char")
SIZES = {"train": 300, "valid": 40, "test": 60}
FIRST = "in the theater many tired singers in yellow helmets are playing the dirty microphone"


@pytest.fixture(scope="module")
def corpora() -> dict[str, Corpus]:
    return {name: open_corpus({"name": name} | SIZES) for name in CORPUS_NAMES}


@pytest.fixture(scope="module")
def samples() -> list[tuple[list[str], float]]:
    random = Random(1)
    grammar = caption_grammar()
    return [grammar.sample(random) for _ in range(4000)]


def with_uniform_choices(grammar: Grammar) -> Grammar:
    """Return the rules with equally likely choices, so that samples contain the rare ones."""
    uniform = {}
    for symbol, rules in grammar.rules.items():
        choices = [" ".join(rule.symbols) for rule in rules]
        uniform[symbol] = dict.fromkeys(choices, 1)
    return Grammar(grammar.start, uniform)


Ends = dict[int, float]
"""The possible ends of a symbol that begins at a place, with their probabilities."""


class Inside:
    """The probability of words by the inside algorithm, top down, apart from the sampler."""

    def __init__(self, grammar: Grammar, words: Sequence[str]):
        self.grammar = grammar
        self.words = words
        self.ends = cache(self._ends)

    def probability(self) -> float:
        ends = self.ends(self.grammar.start, 0)
        return ends.get(len(self.words), 0.0)

    def _ends(self, symbol: str, begin: int) -> Ends:
        if symbol not in self.grammar.rules:
            return self._word_end(symbol, begin)
        total: Ends = defaultdict(float)
        # Every rule reads its parts one after another.
        for rule in self.grammar.rules[symbol]:
            reached = {begin: rule.probability}
            for part in rule.symbols:
                reached = self._after(part, reached)
            for end, probability in reached.items():
                total[end] += probability
        return total

    def _word_end(self, word: str, begin: int) -> Ends:
        if self.words[begin : begin + 1] == [word]:
            return {begin + 1: 1.0}
        return {}

    def _after(self, part: str, reached: Ends) -> Ends:
        """Return where a part can end that follows the ends before it."""
        further: Ends = defaultdict(float)
        for middle, probability in reached.items():
            for end, of_part in self.ends(part, middle).items():
                further[end] += probability * of_part
        return further


@pytest.mark.parametrize("change", [lambda grammar: grammar, with_uniform_choices])
def test_no_sentence_has_two_derivations(change):
    grammar = change(caption_grammar())
    random = Random(0)
    for _ in range(60):
        words, log_prob = grammar.sample(random)
        # A second derivation would add to the probability of the first.
        total = Inside(grammar, words).probability()
        assert isclose(total, exp(log_prob), rel_tol=1e-9)


def scored_tokens(name: str, words: list[str]) -> int:
    """Return the words or the characters of a sentence and its end."""
    if name == "captions":
        return len(words) + 1
    return len(" ".join(words)) + 1


def assert_mean_is_zero(excess: np.ndarray):
    """Assert that the mean is at most four standard errors from zero."""
    assert abs(excess.mean()) < 4 * sem(excess)


@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_entropy_floors_equal_the_mean_surprise_of_samples(corpora, samples, name):
    sentences, log_probs = zip(*samples, strict=True)
    tokens = np.array([scored_tokens(name, words) for words in sentences])
    surprise = -np.array(log_probs)
    floor = corpora[name].floor
    assert_mean_is_zero(surprise - floor.token * tokens)
    assert_mean_is_zero(surprise / tokens - floor.sentence)


@pytest.mark.parametrize("split", SIZES)
@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_sequences_are_complete_and_have_no_unknown_token(corpora, name, split):
    part = getattr(corpora[name], split)
    last = part.tokens.gather(1, part.lengths[:, None] - 1)
    ends = part.tokens.eq(END).sum()
    assert last.eq(END).all()
    assert ends == len(part) == SIZES[split]
    assert not part.tokens.eq(UNKNOWN).any()


# Vocabulary, length, and the floors of a token and of a sentence.
PINS = {"captions": (251, 20, 1.4869, 1.5105), "captions_char": (30, 138, 0.3021, 0.3102)}


@pytest.mark.parametrize("name", PINS)
def test_the_grammar_is_pinned(corpora, name):
    """Results of different versions are compared, so the grammar must not change unnoticed."""
    corpus = corpora[name]
    vocab, length, token, sentence = PINS[name]
    assert corpus.task.vocab == vocab
    assert corpus.task.length == length
    assert round(corpus.floor.token, 4) == token
    assert round(corpus.floor.sentence, 4) == sentence


def test_the_first_caption_is_pinned():
    (first,) = sample_captions(0, "train", 1)
    assert " ".join(first) == FIRST
