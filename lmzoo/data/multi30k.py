"""Multi30k: 31,014 image captions in English and German.

    multi30k_en        by word        <start> a man in a blue shirt ... <end>     V = 14,450
    multi30k_en_char   by character   <start> A   m a n   i n ...                 V = 84
    multi30k_de_en     by word        source  ein mann in weiß. <end>             V = 24,333
                                      target  <start> a man in white. <end>       V = 14,450

The published splits have 29,000 + 1,014 + 1,000 captions. `split="official"` uses them with the
vocabulary of the training file, and some rare training words are `<unk>` (`train_unk`).
`split="seed"` uses the split of S0: part of the training file is held out for validation, and the
vocabulary includes the words of these held-out captions; the test split is the published test file,
which S0 did not use. In the pairs of `multi30k_de_en`, captions with a blank side are dropped.

The captions describe images of Flickr30k and are for non-commercial research. The files are
downloaded from github.com/multi30k/dataset and checked, or read from `--data-dir`.

Source: Elliott et al. 2016 (arXiv:1605.00459); preprocessing of `split="seed"`: S0; pairs: S3.
"""

import re
from typing import Literal

from pydantic import Field, PositiveInt

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.download import FILES, locate
from lmzoo.data.files import read_lines
from lmzoo.data.sequences import Pair, assemble, assemble_pairs
from lmzoo.data.splits import interleave, shuffled_cut
from lmzoo.data.vocabulary import SPECIALS, TrainUnk, Vocabulary, build_vocabulary

SOURCE = (
    "Multi30k task 1 (Elliott et al. 2016, arXiv:1605.00459), github.com/multi30k/dataset; "
    "captions of Flickr30k, for non-commercial research"
)
SPLIT_SEED = 29
"""Random seed of the split in S0."""

Splits = Literal["official", "seed"]


class Multi30kFiles(CorpusSource):
    """Base class that reads the published files."""

    def all_lines(self, name: str) -> list[str]:
        """Return all lines; a line number is the same caption in every language."""
        return read_lines(locate(FILES[name], self.data_dir, self.name))

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file without blank lines."""
        return [line for line in self.all_lines(name) if line.strip()]

    def words(self, line: str) -> list[str]:
        return split_words(line, split_punctuation=self.config.punctuation == "split")


@config
class WordConfig:
    """The split, and how captions are split into words."""

    split: Splits = "official"
    punctuation: Literal["glued", "split"] = "glued"
    """Whether `shirt.` is one token, as in S0, or two."""
    min_count: PositiveInt = 1
    """Rarer words become `<unk>`. With 1, only `train_unk` puts `<unk>` into the training split;
    2 % of the validation words are unknown."""
    train_unk: TrainUnk = True
    """Replace 1.97 % of the training words, mostly rare ones, by `<unk>` if `min_count` is 1, so
    that its probability is learned (`vocabulary.py`). `split="seed"` never does."""
    max_words: PositiveInt = 18
    """Words kept of each caption; T is two more."""
    joint_vocab: bool = False
    """Add the German vocabulary, as the softmax of S0 does; German tokens are never targets."""


@CORPORA("multi30k_en")
class Multi30kWords(Multi30kFiles):
    """English captions of photographs, written by people, in lower case by word (Multi30k task 1).

    By default the published splits: 29,000 training, 1,014 validation and 1,000 test captions.
    Captions with more than `max_words` words are cut, not dropped, and `<end>` follows them too.
    Words that the training split lacks become `<unk>`; so that its probability is learned, 2 % of
    the training words, mostly rare ones, are `<unk>` too. For non-commercial research; from
    github.com/multi30k/dataset (Elliott et al. 2016, arXiv:1605.00459).
    """

    Config = WordConfig

    def load(self) -> Corpus:
        train = self.sentences("train.en")
        valid = self.sentences("val.en")
        test = self.sentences("test_2016_flickr.en")
        # Of the whole file: S0 held out captions after it had built the vocabulary.
        vocabulary_part = train
        if self.config.split == "seed":
            # Only the split of S0 is drawn: the official parts are files.
            train, valid = shuffled_cut(train, 0.8, SPLIT_SEED)
        vocabulary = build_vocabulary(vocabulary_part, min_count=self.config.min_count)
        if self.config.joint_vocab:
            german = build_vocabulary(self.sentences("train.de"), min_count=self.config.min_count)
            vocabulary = join_vocabularies(german, vocabulary)
        return assemble(
            self.name,
            (train, valid, test),
            vocabulary,
            length=self.config.max_words + 2,
            end=True,
            end_after_cut=True,
            unit="word",
            source=SOURCE,
            train_unk=self.config.train_unk and self.config.split == "official",
        )

    def sentences(self, name: str) -> list[list[str]]:
        return list(map(self.words, self.lines(name)))


@config
class CharConfig:
    """The split, and the number of characters kept of each caption."""

    split: Splits = "official"
    length: int = Field(100, ge=3)
    """Padded length T, `<start>` included."""


@CORPORA("multi30k_en_char")
class Multi30kCharacters(Multi30kFiles):
    """English captions of photographs, written by people, by character (Multi30k task 1).

    By default the published splits: 29,000 training, 1,014 validation and 1,000 test captions.
    Case is kept. Longer captions are cut, not dropped; `<end>` follows captions that are not cut.
    For non-commercial research; from github.com/multi30k/dataset (Elliott et al. 2016,
    arXiv:1605.00459).

    With `split="seed"`, the first line is dropped, every 5th caption is held out, and no caption
    has `<end>`, as in S0.
    """

    Config = CharConfig

    def load(self) -> Corpus:
        # One place is for `<start>`.
        max_characters = self.config.length - 1
        as_published = self.config.split == "seed"
        train = self.lines("train.en")
        test = self.lines("test_2016_flickr.en")
        if as_published:
            # S0 lost the first line: it read the file as a table with a header.
            vocabulary_part = [line[:max_characters] for line in train[1:]]
            train, valid = interleave(vocabulary_part, (4, 1))
        else:
            vocabulary_part = train
            valid = self.lines("val.en")
        return assemble(
            self.name,
            (train, valid, test),
            build_vocabulary(vocabulary_part, joiner=""),
            length=self.config.length,
            end=not as_published,
            unit="character",
            source=SOURCE,
        )


@CORPORA("multi30k_de_en")
class Multi30kPairs(Multi30kFiles):
    """German and English captions of the same photographs, written by people, by word.

    The published splits of Multi30k task 1, in lower case. Longer captions are cut, not dropped,
    and unknown words become `<unk>`, as in `multi30k_en`. For non-commercial research; from
    github.com/multi30k/dataset (Elliott et al. 2016, arXiv:1605.00459).
    """

    @config
    class Config:
        """How captions are split into words; as in `multi30k_en`."""

        punctuation: Literal["glued", "split"] = "glued"
        """Whether `shirt.` is one token or two."""
        min_count: PositiveInt = 1
        """Rarer words become `<unk>`. With 1, only `train_unk` puts `<unk>` into the training
        split."""
        train_unk: TrainUnk = True
        """Replace some rare training words by `<unk>`, on each side, as in `multi30k_en`."""
        max_words: PositiveInt = 18
        """Words kept on each side; T is two more."""

    def load(self) -> Corpus:
        parts = [self.pairs(part) for part in ("train", "val", "test_2016_flickr")]
        return assemble_pairs(
            self.name,
            parts,
            length=self.config.max_words + 2,
            min_count=self.config.min_count,
            unit="word",
            source=SOURCE,
            train_unk=self.config.train_unk,
        )

    def pairs(self, part: str) -> list[Pair]:
        """Return the German and English words of every caption of this part.

        A `UserError` says that the two files differ in their number of lines.
        """
        # With empty lines: a pair is a line of each file.
        german = self.all_lines(f"{part}.de")
        english = self.all_lines(f"{part}.en")
        if len(german) != len(english):
            raise UserError(
                f"{self.name}: {part}.de has {len(german)} lines and {part}.en {len(english)}; "
                "they must be translations line by line: fetch both again"
            )
        sources = map(self.words, german)
        targets = map(self.words, english)
        pairs = zip(sources, targets, strict=True)
        # A translation without words is no pair.
        return [(de, en) for de, en in pairs if de and en]


def split_words(line: str, *, split_punctuation: bool) -> list[str]:
    """Split a line into lower-case words.

    With `split_punctuation`, punctuation marks are tokens of their own, except inside words such as
    `x-ray's`. Without it, words are separated by blanks only.
    """
    if not split_punctuation:
        return line.lower().split()
    # Words may have hyphens, apostrophes and points inside.
    return re.findall(r"\w+(?:[-'’.]\w+)*|[^\w\s]", line.lower())


def join_vocabularies(german: Vocabulary, english: Vocabulary) -> Vocabulary:
    """Return the tokens of both, |V_de| + |V_en|; the prefix <de> keeps German tokens distinct."""
    # Marked: a word of both languages is two tokens.
    marked = tuple(f"<de>{token}" for token in german.tokens)
    return Vocabulary(SPECIALS + marked + english.tokens[len(SPECIALS) :], english.joiner)
