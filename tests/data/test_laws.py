"""Every built-in corpus without files obeys the laws of corpora, and each law can fail."""

import dataclasses
from typing import Any, ClassVar

import pytest
import torch

from lmzoo.contract import START
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, DrawnConfig, EntropyFloor, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.laws import corpora
from lmzoo.laws.corpora import CORPUS_LAWS


class Coin(CorpusSource):
    """Tosses of a coin, with one change."""

    change: ClassVar[dict[str, Any]] = {}

    def load(self) -> Corpus:
        train = self.toss(0)
        valid = self.toss(1)
        test = self.toss(2)
        sides = Vocabulary(SPECIALS + ("heads", "tails"))
        corpus = Corpus("coin", sides, train, valid, test, unit="toss", source="random")
        return dataclasses.replace(corpus, **self.change)

    def toss(self, seed: int, count: int = 4, length: int = 5) -> Sequences:
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(4, 6, (count, length), generator=generator)
        tokens[:, 0] = START
        lengths = torch.full((count,), length)
        return Sequences(tokens, lengths)


class Random(Coin):
    def load(self) -> Corpus:
        # Another seed at each call.
        seed = torch.Generator().seed() % 2**31
        train = self.toss(seed)
        return dataclasses.replace(super().load(), train=train)


def changed(**change: object) -> CorpusSource:
    return type("Changed", (Coin,), {"change": change})(None, None)


COIN = Coin(None, None)
TOSSES = COIN.toss(0)
NO_TOSSES = COIN.toss(0, count=0)
LONGER = COIN.toss(0, length=6)
# Its tails have an id that the vocabulary has not.
SHIFTED = Sequences(TOSSES.tokens + 1, TOSSES.lengths)
# A token stands where padding should be.
SHORT = Sequences(TOSSES.tokens, TOSSES.lengths - 1)
# A fair coin has log 2 = 0.69.
IMPOSSIBLE = EntropyFloor(token=2.0, sentence=0.1)
FAULTS = [
    (Random(None, None), corpora.law_loading_is_deterministic),
    (changed(valid=NO_TOSSES), corpora.law_every_split_has_sequences),
    (changed(test=LONGER), corpora.law_splits_have_one_length),
    (changed(train=SHIFTED), corpora.law_tokens_are_in_the_vocabulary),
    (changed(train=SHORT), corpora.law_tokens_are_in_the_vocabulary),
    (changed(floor=IMPOSSIBLE), corpora.law_the_entropy_is_possible),
]


DRAWN = [name for name in CORPORA if issubclass(CORPORA[name].Config, DrawnConfig)]


@pytest.mark.parametrize("law", CORPUS_LAWS)
def test_a_corpus_that_is_no_part_of_the_zoo_obeys_every_law(law):
    law(COIN)


@pytest.mark.parametrize("name", DRAWN)
def test_a_corpus_obeys_every_law(name):
    config = CORPORA.parse({"name": name, "train": 40, "valid": 30, "test": 20})
    source = CORPORA.build(config, None)
    for law in CORPUS_LAWS:
        law(source)


@pytest.mark.parametrize(("source", "law"), FAULTS)
def test_a_fault_is_detected(source, law):
    with pytest.raises(AssertionError):
        law(source)


def test_every_law_has_a_fault():
    assert {law for _, law in FAULTS} == set(CORPUS_LAWS)
