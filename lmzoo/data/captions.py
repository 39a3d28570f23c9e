"""Captions: sentences sampled from a known grammar, so the entropy floor is known exactly.

    captions        by word:       <start> ≤18 words <end>              T = 20
    captions_char   by character:  <start> the same sentences <end>     T from the grammar

No sentence has two derivations (`captions_rules`), so −log P(sentence) is that of its derivation
and both entropy floors are exact expectations under the grammar. Each split is sampled from its
own random stream. Both corpora have the same sentences. The grammar was written for this project
and has its licence, MIT.
"""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import ClassVar

from pydantic import Field

from lmzoo.config import config
from lmzoo.data.assemble import encode
from lmzoo.data.captions_rules import caption_grammar
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, EntropyFloor, Sequences
from lmzoo.data.grammar import LengthTable
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.seeding import derive_seed

MAX_WORDS = 18
"""With `<start>` and `<end>`, T = 20 as in S0."""


@cache
def word_lengths() -> LengthTable:
    """Return the length table of sentences by word: the scored tokens are the words and `<end>`."""
    table = caption_grammar().lengths(lambda _: 1)
    assert table.longest <= MAX_WORDS, "a template of the grammar has too many words"
    return table.shifted(1)


@cache
def character_lengths() -> LengthTable:
    """Return the length table by character: the characters of each word, and a blank or `<end>`."""
    return caption_grammar().lengths(lambda word: len(word) + 1)


def sample_captions(seed: int, split: str, count: int) -> list[list[str]]:
    """Return the first `count` sentences of this split, as words."""
    random = Random(derive_seed(seed, "captions", split))
    return [caption_grammar().sample(random)[0] for _ in range(count)]


@CORPORA("captions")
class Captions(CorpusSource):
    """Caption-like sentences by word."""

    unit: ClassVar[str] = "word"

    @config
    class Config:
        """Sentences per split, and the random seed."""

        train: int = Field(4000, ge=1)
        valid: int = Field(500, ge=1)
        test: int = Field(1000, ge=1)
        seed: int = Field(0, ge=0)

    def load(self) -> Corpus:
        vocabulary = self.vocabulary()
        lengths = self.scored_lengths()

        def part(split: str) -> Sequences:
            sentences = sample_captions(self.config.seed, split, getattr(self.config, split))
            tokens = [self.tokens(sentence) for sentence in sentences]
            return encode(tokens, vocabulary, length=lengths.longest + 1, end=True)

        return Corpus(
            name=self.name,
            vocabulary=vocabulary,
            train=part("train"),
            valid=part("valid"),
            test=part("test"),
            unit=self.unit,
            source="sampled from the grammar of lmzoo.data.captions_rules; MIT",
            floor=EntropyFloor(
                token=lengths.entropy / lengths.mean, sentence=lengths.entropy_per_unit
            ),
        )

    def vocabulary(self) -> Vocabulary:
        """Return all words of the grammar, which do not depend on the sample."""
        return Vocabulary((*SPECIALS, *caption_grammar().words))

    def tokens(self, sentence: Sequence[str]) -> Sequence[str]:
        """Return the tokens of a sentence."""
        return sentence

    def scored_lengths(self) -> LengthTable:
        """Return the distribution of the number of scored tokens, with their surprise."""
        return word_lengths()


@CORPORA("captions_char")
class CaptionCharacters(Captions):
    """The same sentences by character; the blank is a token."""

    unit: ClassVar[str] = "character"

    @config
    class Config(Captions.Config):
        """Sentences per split, and the random seed."""

    def vocabulary(self) -> Vocabulary:
        characters = sorted({character for word in caption_grammar().words for character in word})
        return Vocabulary((*SPECIALS, " ", *characters), joiner="")

    def tokens(self, sentence: Sequence[str]) -> Sequence[str]:
        return " ".join(sentence)

    def scored_lengths(self) -> LengthTable:
        return character_lengths()
