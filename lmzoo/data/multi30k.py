"""Multi30k: 31,014 image captions, by word (`multi30k_en`) and by character.

words        <start> a man in a blue shirt ... <end>     V = 14,450 from all 29,000 captions
characters   <start> A   m a n   i n ...                 V = 84

`split="official"` takes the published files and a vocabulary from the training file.
`split="seed"` takes S0's cut of the training file, and its vocabulary, which saw the
held-out captions; the official test file, which S0 never read, stays the test.

Elliott et al. 2016 (arXiv:1605.00459); S0's preprocessing: zoo.md 1.9.
"""

import re
from typing import Literal

from pydantic import Field, PositiveInt

from lmzoo.config import config
from lmzoo.data.assemble import Split, assemble
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.download import RemoteFile, locate
from lmzoo.data.lines import read_lines
from lmzoo.data.splits import interleave, shuffled_cut
from lmzoo.data.vocabulary import SPECIALS, Vocabulary, by_frequency

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
SOURCE = (
    "Multi30k task 1 (Elliott et al. 2016, arXiv:1605.00459), github.com/multi30k/dataset; "
    "captions of Flickr30k, for non-commercial research"
)
# Taken from local copies of the files; upstream publishes no checksums.
SHA256 = {
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}
SEED = 29
"""S0's random seed."""

Splits = Literal["official", "seed"]


class Captions(CorpusSource):
    """Any of the published files, by name."""

    def all_lines(self, name: str) -> list[str]:
        """The lines of this file, so that a line number finds the same caption in any language."""
        file = RemoteFile("multi30k", f"{URL}{name}.gz", SHA256[name])
        return read_lines(locate(file, self.data_dir, self.name))

    def lines(self, name: str) -> list[str]:
        """The lines of this file, blank ones dropped."""
        return [line for line in self.all_lines(name) if line.strip()]


@config
class WordConfig:
    """How captions become words, and which captions train."""

    split: Splits = "official"
    punctuation: Literal["glued", "split"] = "glued"
    """Whether `shirt.` is one word, as in S0, or two."""
    min_count: PositiveInt = 1
    """With 1, no `<unk>` is ever trained on; 2 % of validation words are unknown."""
    max_words: PositiveInt = 18
    """Words kept; T is two more."""
    joint_vocab: bool = False
    """S0's softmax over |V_de| + |V_en| classes, the German ones never targets."""


@CORPORA("multi30k_en")
class Multi30kWords(Captions):
    """English captions, lower-case, by word; `<end>` also after a cut."""

    Config = WordConfig

    def load(self) -> Corpus:
        train, valid, test = map(self.sentences, ("train.en", "val.en", "test_2016_flickr.en"))
        counted = train
        if self.config.split == "seed":
            train, valid = shuffled_cut(train, 0.8, SEED)
        vocabulary = by_frequency(counted, min_count=self.config.min_count)
        if self.config.joint_vocab:
            german = by_frequency(self.sentences("train.de"), min_count=self.config.min_count)
            vocabulary = joint(german, vocabulary)
        return assemble(
            self.name, Split(train, valid, test), vocabulary,
            length=self.config.max_words + 2, end=True, cut_ends=True, unit="word", source=SOURCE,
        )  # fmt: skip

    def sentences(self, name: str) -> list[list[str]]:
        """The words of every caption."""
        split = self.config.punctuation == "split"
        return [words(line, split_punctuation=split) for line in self.lines(name)]


@config
class CharConfig:
    """Which captions train, and how many characters of each are kept."""

    split: Splits = "official"
    length: int = Field(100, ge=3)
    """Padded length T, `<start>` included."""


@CORPORA("multi30k_en_char")
class Multi30kCharacters(Captions):
    """English captions, case kept, by character; `<end>` where the caption is whole.

    S0 dropped the first line, wrote no `<end>` and held out every 5th caption.
    """

    Config = CharConfig

    def load(self) -> Corpus:
        room, seed = self.config.length - 1, self.config.split == "seed"
        train = self.lines("train.en")
        test = self.lines("test_2016_flickr.en")
        if seed:
            counted = [line[:room] for line in train[1:]]
            train, valid = interleave(counted, (4, 1))
        else:
            counted, valid = train, self.lines("val.en")
        return assemble(
            self.name, Split(train, valid, test), by_frequency(counted, joiner=""),
            length=self.config.length, end=not seed, unit="character", source=SOURCE,
        )  # fmt: skip


def words(line: str, *, split_punctuation: bool) -> list[str]:
    """Lower-case words; split, `x-ray's` stays whole and other punctuation stands alone."""
    if not split_punctuation:
        return line.lower().split()
    return re.findall(r"\w+(?:[-'’.]\w+)*|[^\w\s]", line.lower())


def joint(german: Vocabulary, english: Vocabulary) -> Vocabulary:
    """Both vocabularies' tokens, |V_de| + |V_en|; German ones are marked, so none is a target."""
    marked = (f"<de>{token}" for token in german.tokens)
    return Vocabulary((*SPECIALS, *marked, *english.tokens[len(SPECIALS) :]), english.joiner)
