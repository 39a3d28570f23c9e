"""Captions: sentences sampled from a known grammar, so the least possible loss is known.

    captions        words:       <start> ≤18 words <end>              T = 20
    captions_char   characters:  <start> the same sentences <end>     T from the grammar

No sentence has two derivations (`captions_rules`), so −log P(sentence) is the surprise of
its derivation, and both floors are exact expectations under the grammar. The three
splits are independent streams of the seed; both forms hold the same sentences.
"""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import ClassVar

from pydantic import Field

from lmzoo.config import config
from lmzoo.contract import stream
from lmzoo.data.captions_rules import caption_grammar
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, EntropyFloor, Sequences
from lmzoo.data.encode import encode
from lmzoo.data.grammar import Grammar, LengthTable
from lmzoo.data.vocabulary import SPECIALS, Vocabulary

LONGEST = 18
"""Words in a sentence at most: with `<start>` and `<end>`, T = 20 as in S0."""


@cache
def captions() -> Grammar:
    """The grammar, compiled once per process."""
    return caption_grammar()


@cache
def scored_words() -> LengthTable:
    """The scored tokens of a sentence of words: they and `<end>`."""
    table = captions().lengths(lambda _: 1)
    assert table.longest <= LONGEST, "a template of the grammar spends too many words"
    return table.shifted(1)


@cache
def scored_letters() -> LengthTable:
    """The same of letters: each word's, and the blank or `<end>` after it."""
    return captions().lengths(lambda word: len(word) + 1)


def draw(seed: int, split: str, count: int) -> list[list[str]]:
    """The first `count` sentences of this split, as words."""
    random = Random(stream(seed, "captions", split))
    return [captions().sample(random)[0] for _ in range(count)]


@CORPORA("captions")
class Captions(CorpusSource):
    """Caption-like sentences as words."""

    unit: ClassVar[str] = "word"

    @config
    class Config:
        """How many sentences, of which seed."""

        train: int = Field(4000, ge=1)
        valid: int = Field(500, ge=1)
        test: int = Field(1000, ge=1)
        seed: int = Field(0, ge=0)

    def load(self) -> Corpus:
        vocabulary = self.vocabulary()
        scored = self.scored()

        def part(split: str) -> Sequences:
            sentences = draw(self.config.seed, split, getattr(self.config, split))
            tokens = [self.tokens(sentence) for sentence in sentences]
            return encode(tokens, vocabulary, length=scored.longest + 1, end=True)

        return Corpus(
            name=self.name,
            vocabulary=vocabulary,
            train=part("train"),
            valid=part("valid"),
            test=part("test"),
            unit=self.unit,
            source="sampled from the grammar of lmzoo.data.captions_rules; MIT",
            floor=EntropyFloor(
                token=scored.entropy / scored.mean, sentence=scored.entropy_per_unit
            ),
        )

    def vocabulary(self) -> Vocabulary:
        """All the grammar can say, whatever was sampled."""
        return Vocabulary((*SPECIALS, *captions().words))

    def tokens(self, sentence: Sequence[str]) -> Sequence[str]:
        """The sentence in this corpus's units."""
        return sentence

    def scored(self) -> LengthTable:
        """Lengths and surprise of the scored tokens of a sentence."""
        return scored_words()


@CORPORA("captions_char")
class CaptionCharacters(Captions):
    """The same sentences as characters, the blank among them."""

    unit: ClassVar[str] = "character"

    @config
    class Config(Captions.Config):
        """How many sentences, of which seed."""

    def vocabulary(self) -> Vocabulary:
        letters = sorted({letter for word in captions().words for letter in word})
        return Vocabulary((*SPECIALS, " ", *letters), joiner="")

    def tokens(self, sentence: Sequence[str]) -> Sequence[str]:
        return " ".join(sentence)

    def scored(self) -> LengthTable:
        return scored_letters()
