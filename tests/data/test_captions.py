"""The captions of a grammar: probabilities, entropy floors, pins."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from math import exp, isclose
from random import Random

import pytest
import torch

from lmzoo.contract import END, UNKNOWN
from lmzoo.data.captions import caption_grammar, sample_captions
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.data.grammar import Grammar

CORPUS_NAMES = ("captions", "captions_char")
SIZES = {"train": 300, "valid": 40, "test": 60}
FIRST = "in the theater many tired singers in yellow helmets are playing the dirty microphone"


@pytest.fixture(scope="module")
def corpora() -> dict[str, Corpus]:
    return {name: open_corpus({"name": name, **SIZES}) for name in CORPUS_NAMES}


@pytest.fixture(scope="module")
def samples() -> list[tuple[list[str], float]]:
    random = Random(1)
    grammar = caption_grammar()
    return [grammar.sample(random) for _ in range(4000)]


def with_uniform_choices(grammar: Grammar) -> Grammar:
    """Return the rules with equally likely choices, so that samples contain the rare ones."""
    uniform = {}
    for symbol, rules in grammar.rules.items():
        uniform[symbol] = {" ".join(rule.symbols): 1 for rule in rules}
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
        return self.ends(self.grammar.start, 0).get(len(self.words), 0.0)

    def _ends(self, symbol: str, begin: int) -> Ends:
        if symbol not in self.grammar.rules:
            if self.words[begin : begin + 1] == [symbol]:
                return {begin + 1: 1.0}
            return {}
        total: Ends = defaultdict(float)
        # Every rule reads its parts one after another.
        for rule in self.grammar.rules[symbol]:
            reached = {begin: rule.probability}
            for part in rule.symbols:
                reached = self._after(part, reached)
            for end, p in reached.items():
                total[end] += p
        return total

    def _after(self, part: str, reached: Ends) -> Ends:
        further: Ends = defaultdict(float)
        for middle, p in reached.items():
            for end, q in self.ends(part, middle).items():
                further[end] += p * q
        return further


@pytest.mark.parametrize("change", [lambda grammar: grammar, with_uniform_choices])
def test_no_sentence_has_two_derivations(change):
    grammar = change(caption_grammar())
    random = Random(0)
    for _ in range(60):
        words, log_prob = grammar.sample(random)
        assert isclose(Inside(grammar, words).probability(), exp(log_prob), rel_tol=1e-9)


def scored_tokens(name: str, words: list[str]) -> int:
    """Return the words or the characters of a sentence and its end."""
    if name == "captions":
        return len(words) + 1
    return len(" ".join(words)) + 1


@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_entropy_floors_equal_the_mean_surprise_of_samples(corpora, samples, name):
    n = torch.tensor([scored_tokens(name, words) for words, _ in samples]).double()
    surprise = torch.tensor([-log_prob for _, log_prob in samples]).double()
    floor = corpora[name].floor
    for excess in (surprise - floor.token * n, surprise / n - floor.sentence):
        standard_error = excess.std() / len(samples) ** 0.5
        assert abs(excess.mean()) < 4 * standard_error


@pytest.mark.parametrize("split", SIZES)
@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_sequences_are_complete_and_have_no_unknown_token(corpora, name, split):
    part = getattr(corpora[name], split)
    last = part.tokens.gather(1, part.lengths[:, None] - 1)
    assert (last == END).all()
    assert (part.tokens == END).sum() == len(part) == SIZES[split]
    assert not (part.tokens == UNKNOWN).any()


PINS = [("captions", 251, 20, 1.4869, 1.5105), ("captions_char", 30, 138, 0.3021, 0.3102)]


@pytest.mark.parametrize(("name", "vocab", "length", "token", "sentence"), PINS)
def test_the_grammar_is_pinned(corpora, name, vocab, length, token, sentence):
    """Results of different versions are compared, so the grammar must not change unnoticed."""
    corpus = corpora[name]
    assert corpus.task.vocab == vocab
    assert corpus.task.length == length
    assert round(corpus.floor.token, 4) == token
    assert round(corpus.floor.sentence, 4) == sentence


def test_the_first_caption_is_pinned():
    assert sample_captions(0, "train", 1) == [FIRST.split()]
