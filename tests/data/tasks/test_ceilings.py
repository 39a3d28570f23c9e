"""Every task is solved to its ceiling by a predictor that is written apart from its generator."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import product
from math import log

import pytest
import torch

from lmzoo.contract import START
from lmzoo.data.corpus import CORPORA, Corpus, Sequences, open_corpus
from lmzoo.data.tasks.base import GeneratedTask
from tests.data.tasks.oracles import ORACLES

SMALL = {"train": 40, "valid": 30, "test": 20}
TASKS = [name for name in CORPORA if issubclass(CORPORA[name], GeneratedTask)]


def small(name: str, **fields: object) -> Corpus:
    return open_corpus({"name": name, **SMALL, **fields})


def questions(corpus: Corpus, part: Sequences) -> Iterator[tuple[list[str], str]]:
    """Yield the names of the symbols before each scored symbol, and its own."""
    for tokens, scored in zip(part.tokens, part.scored, strict=True):
        text = [corpus.vocabulary.tokens[i] for i in tokens.tolist()]
        for t in scored.nonzero()[:, 0].tolist():
            yield text[1:t], text[t]


def accuracy(corpus: Corpus, part: Sequences, predict: Callable) -> float:
    right = [predict(prefix) == answer for prefix, answer in questions(corpus, part)]
    return sum(right) / len(right)


@pytest.mark.parametrize("name", ORACLES)
def test_the_prefix_determines_every_answer(name):
    corpus = small(name)
    for part in (corpus.valid, corpus.test):
        assert accuracy(corpus, part, ORACLES[name]) == corpus.ceiling == 1
    assert corpus.floor.token == corpus.floor.sentence == 0


@pytest.mark.parametrize("name", ORACLES)
def test_a_wrong_answer_is_seen(name):
    corpus = small(name)
    part = corpus.test
    row, t = part.scored.nonzero()[0].tolist()
    part.ids[row, t] = START
    assert accuracy(corpus, part, ORACLES[name]) < 1


def test_memorisation_has_one_dictionary_and_no_key_twice():
    corpus = small("memorisation", length=16, keys=20)
    learned = {prefix[-1]: answer for prefix, answer in questions(corpus, corpus.train)}
    assert len(learned) == len(set(learned.values())) == 20
    assert accuracy(corpus, corpus.test, lambda prefix: learned[prefix[-1]]) == corpus.ceiling
    keys = corpus.test.tokens[:, 1::2]
    assert all(len(set(row.tolist())) == len(row) for row in keys)


@pytest.mark.parametrize(("kinds", "depth", "length"), [(2, 2, 5), (1, 3, 6), (3, 1, 4)])
def test_the_facts_of_dyck_are_those_of_all_words(kinds, depth, length):
    """Enumerate all words with their probabilities; the ceilings are expectations over them."""
    sizes = {"length": length, "test_length": length, "train": 1, "valid": 1, "test": 1}
    for split, other in (("valid", "test_length"), ("test", "length")):
        _compare(split, length, kinds, depth, {**sizes, other: 9})


def _compare(split: str, length: int, kinds: int, depth: int, sizes: dict[str, int]) -> None:
    task = CORPORA.build(
        CORPORA.parse({"name": "dyck", "kinds": kinds, "depth": depth, **sizes}), None
    )
    total = surprise = right = 0.0
    for word in product(range(2 * kinds), repeat=length):
        p, nats, best, stack = 1.0, 0.0, 0.0, []
        for symbol in word:
            chances = _chances(stack, kinds, depth)
            if symbol not in chances:
                p = 0.0
                break
            p *= chances[symbol]
            nats -= log(chances[symbol])
            best += max(chances.values())
            _ = stack.append(symbol) if symbol < kinds else stack.pop()
        total, surprise, right = total + p, surprise + p * nats, right + p * best
    assert total == pytest.approx(1)
    assert task.entropy(split) == pytest.approx(surprise / length)
    assert task.accuracy_ceiling(split) == pytest.approx(right / length)


def _chances(stack: list[int], kinds: int, depth: int) -> dict[int, float]:
    """Return the probability of every symbol that may come next."""
    opening = 0.0 if len(stack) == depth else 0.5 if stack else 1.0
    chances = {kind: opening / kinds for kind in range(kinds) if opening}
    return chances | ({kinds + stack[-1]: 1 - opening} if stack else {})


def test_the_floor_of_dyck_is_that_of_each_split():
    """Independent simulations gave 0.8749 for words of 40 symbols and 0.8708 for those of 80."""
    corpus = small("dyck")
    assert corpus.valid_floor.token == pytest.approx(0.8749, abs=5e-4)
    assert corpus.floor.token == pytest.approx(0.8708, abs=5e-4)


def test_words_of_dyck_have_the_stated_probabilities():
    """The best predictor reaches the ceiling and the entropy on a large sample."""
    corpus = open_corpus({"name": "dyck", "train": 1, "valid": 1, "test": 2000})
    nats, right = [], []
    for tokens in (corpus.test.tokens[:, 1:] - 4).tolist():
        stack: list[int] = []
        for symbol in tokens:
            chances = _chances(stack, 2, 4)
            nats.append(-log(chances[symbol]))
            right.append(symbol == max(chances, key=lambda s: (chances[s], s)))
            _ = stack.append(symbol) if symbol < 2 else stack.pop()
    # 160,000 symbols: standard errors are about 0.001 and 0.0012.
    assert sum(nats) / len(nats) == pytest.approx(corpus.floor.token, abs=0.005)
    assert sum(right) / len(right) == pytest.approx(corpus.ceiling, abs=0.006)


def test_queries_of_mqar_come_sooner_with_a_smaller_power():
    def mean_place(power: float) -> float:
        part = small("mqar", power=power, test=300, pairs=2).test
        return float(part.scored.nonzero()[:, 1].double().mean())

    # With a = 1 gaps are uniform: 30 slots after 4 symbols, on average at 4 + 30 + 1.5 − 0.5.
    assert mean_place(1.0) == pytest.approx(35, abs=2.5)
    assert mean_place(0.01) < 25


def test_scored_positions_are_in_the_fingerprint():
    corpus = small("mqar")
    part = dataclasses.replace(corpus.test, scored=torch.zeros_like(corpus.test.scored))
    changed = dataclasses.replace(corpus, test=part)
    assert changed.fingerprint != corpus.fingerprint
