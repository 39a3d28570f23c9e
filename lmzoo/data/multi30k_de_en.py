"""Multi30k as a translation task: German captions given, their English ones predicted.

given    ein mann in weiß. <end>           V = 24,333 from the 29,000 training captions
scored   <start> a man in white. <end>     V = 14,450

The published splits: 29,000 + 1,014 + 1,000 pairs. Pairs of which a side is blank are dropped.

Elliott et al. 2016 (arXiv:1605.00459); S3; zoo.md 4.3.
"""

from typing import Literal

from pydantic import PositiveInt

from lmzoo.config import config
from lmzoo.data.corpus import CORPORA, Corpus
from lmzoo.data.multi30k import SOURCE, Captions, words
from lmzoo.data.pairs import Pair, assemble_pairs
from lmzoo.errors import UserError


@CORPORA("multi30k_de_en")
class Multi30kPairs(Captions):
    """German and English captions of one picture, lower-case, by word."""

    @config
    class Config:
        """How captions become words; as in `multi30k_en`."""

        punctuation: Literal["glued", "split"] = "glued"
        """Whether `shirt.` is one word, or two."""
        min_count: PositiveInt = 1
        """With 1, no `<unk>` is ever trained on."""
        max_words: PositiveInt = 18
        """Words kept on each side; T is two more."""

    def load(self) -> Corpus:
        return assemble_pairs(
            self.name, [self.pairs(part) for part in ("train", "val", "test_2016_flickr")],
            length=self.config.max_words + 2, min_count=self.config.min_count, unit="word",
            source=SOURCE,
        )  # fmt: skip

    def pairs(self, part: str) -> list[Pair]:
        """The words of every caption in both languages.

        Raises:
            UserError: the two files do not belong together.
        """
        german, english = (self.all_lines(f"{part}.{language}") for language in ("de", "en"))
        if len(german) != len(english):
            raise UserError(
                f"{self.name}: {part}.de has {len(german)} lines and {part}.en {len(english)}; "
                "they must be translations line by line: fetch both again"
            )
        split = self.config.punctuation == "split"
        both = (
            (words(de, split_punctuation=split), words(en, split_punctuation=split))
            for de, en in zip(german, english, strict=True)
        )
        return [(de, en) for de, en in both if de and en]
