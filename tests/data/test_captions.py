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
    return [caption_grammar().sample(random) for _ in range(4000)]


def with_uniform_choices(grammar: Grammar) -> Grammar:
    """Return the rules with equally likely choices, so that samples contain the rare ones."""
    rules = grammar.rules.items()
    return Grammar(grammar.start, {h: {" ".join(r.symbols): 1 for r in rs} for h, rs in rules})


def string_probability(grammar: Grammar, words: Sequence[str]) -> float:
    """Return P(words) by the inside algorithm, top down; it shares no code with the sampler."""

    @cache
    def ends(symbol: str, begin: int) -> dict[int, float]:
        """Return the possible ends of the symbol that begins at `begin`, with probabilities."""
        if symbol not in grammar.rules:
            return {begin + 1: 1.0} if words[begin : begin + 1] == [symbol] else {}
        total: dict[int, float] = defaultdict(float)
        for rule in grammar.rules[symbol]:
            reached = {begin: rule.probability}
            for part in rule.symbols:
                further: dict[int, float] = defaultdict(float)
                for middle, p in reached.items():
                    for end, q in ends(part, middle).items():
                        further[end] += p * q
                reached = further
            for end, p in reached.items():
                total[end] += p
        return total

    return ends(grammar.start, 0).get(len(words), 0.0)


def test_no_sentence_has_two_derivations():
    for grammar in (caption_grammar(), with_uniform_choices(caption_grammar())):
        random = Random(0)
        for _ in range(60):
            words, log_prob = grammar.sample(random)
            assert isclose(string_probability(grammar, words), exp(log_prob), rel_tol=1e-9)


@pytest.mark.parametrize(
    ("name", "scored"),
    [("captions", lambda words: len(words) + 1), ("captions_char", lambda w: len(" ".join(w)) + 1)],
)
def test_entropy_floors_equal_the_mean_surprise_of_samples(corpora, samples, name, scored):
    n = torch.tensor([scored(words) for words, _ in samples], dtype=torch.float64)
    surprise = torch.tensor([-log_prob for _, log_prob in samples], dtype=torch.float64)
    floor = corpora[name].floor
    for excess in (surprise - floor.token * n, surprise / n - floor.sentence):
        assert abs(excess.mean()) < 4 * excess.std() / len(samples) ** 0.5


@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_sequences_are_complete_and_have_no_unknown_token(corpora, name):
    for split, size in SIZES.items():
        part = getattr(corpora[name], split)
        assert (part.tokens.gather(1, part.lengths[:, None] - 1) == END).all()
        assert (part.tokens == END).sum() == len(part) == size
        assert not (part.tokens == UNKNOWN).any()


def test_the_grammar_is_pinned(corpora):
    """Results of different versions are compared, so the grammar must not change unnoticed."""
    words, letters = corpora.values()
    assert (words.task.vocab, words.task.length) == (251, 20)
    assert (letters.task.vocab, letters.task.length) == (30, 138)
    assert (round(words.floor.token, 4), round(words.floor.sentence, 4)) == (1.4869, 1.5105)
    assert (round(letters.floor.token, 4), round(letters.floor.sentence, 4)) == (0.3021, 0.3102)
    assert sample_captions(0, "train", 1) == [FIRST.split()]
