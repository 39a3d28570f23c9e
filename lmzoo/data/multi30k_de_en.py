"""Multi30k as a translation task: English captions predicted from German ones (`multi30k_de_en`).

    source   ein mann in weiß. <end>           V = 24,333 from the 29,000 training captions
    target   <start> a man in white. <end>     V = 14,450

The splits are the published files: 29,000 + 1,014 + 1,000 pairs. Pairs with a blank side are
dropped. Origin and licence of the files are those of `multi30k_en`.

Source: Elliott et al. 2016 (arXiv:1605.00459); S3.
"""

from typing import Literal

from pydantic import PositiveInt

from lmzoo.config import config
from lmzoo.data.corpus import CORPORA, Corpus
from lmzoo.data.multi30k import SOURCE, Multi30kFiles, split_words
from lmzoo.data.pairs import Pair, assemble_pairs
from lmzoo.errors import UserError


@CORPORA("multi30k_de_en")
class Multi30kPairs(Multi30kFiles):
    """German and English captions of the same image, in lower case, by word."""

    @config
    class Config:
        """How captions are split into words; as in `multi30k_en`."""

        punctuation: Literal["glued", "split"] = "glued"
        """Whether `shirt.` is one token or two."""
        min_count: PositiveInt = 1
        """Rarer words become `<unk>`. With 1, the training split has no `<unk>`."""
        max_words: PositiveInt = 18
        """Words kept on each side; T is two more."""

    def load(self) -> Corpus:
        return assemble_pairs(
            self.name, [self.pairs(part) for part in ("train", "val", "test_2016_flickr")],
            length=self.config.max_words + 2, min_count=self.config.min_count, unit="word",
            source=SOURCE,
        )  # fmt: skip

    def pairs(self, part: str) -> list[Pair]:
        """Return the German and English words of every caption of this part.

        Raises:
            UserError: The two files differ in their number of lines.
        """
        german, english = (self.all_lines(f"{part}.{language}") for language in ("de", "en"))
        if len(german) != len(english):
            raise UserError(
                f"{self.name}: {part}.de has {len(german)} lines and {part}.en {len(english)}; "
                "they must be translations line by line: fetch both again"
            )
        split = self.config.punctuation == "split"
        pairs = (
            (
                split_words(de, split_punctuation=split),
                split_words(en, split_punctuation=split),
            )
            for de, en in zip(german, english, strict=True)
        )
        return [(de, en) for de, en in pairs if de and en]
