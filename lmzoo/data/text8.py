"""text8 and enwik8: the first 10^8 bytes of an English Wikipedia, one contiguous text.

    enwik8   the XML of the dump of 2006-03-03, markup included     by byte, 205 of them occur
    text8    cleaned: a to z and single blanks, digits spelled      by character, 27 of them

The standard split has 90, 5 and 5 million bytes, in the order of the text. Published results are
bits per byte of enwik8, which papers call bits per character, and bits per character of text8. With
other tokens, a character or word that the standard split divides belongs to the later part.

Both are from mattmahoney.net/dc/textdata, text of Wikipedia under the GFDL and CC BY-SA. The
archives are downloaded and checked, or read from `--data-dir`: text8.zip or text8, enwik8.zip or
enwik8. The site publishes checksums of the text and none of the archives; those below are the ones
that other projects record, for enwik8 DataDeps.jl.

Source: Mahoney 2006; Mikolov et al. 2012 (the split); Al-Rfou et al. 2019 (arXiv:1808.04444).
"""

from collections.abc import Sequence

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.download import RemoteFile
from lmzoo.data.published_text import read_published
from lmzoo.data.streams import StreamConfig, TextStream
from lmzoo.data.text_splits import split_bytes
from lmzoo.data.tokenisers.base import Unit

SIZES = (90_000_000, 5_000_000, 5_000_000)
"""Bytes of the splits."""
ORIGIN = "Wikipedia of 2006-03-03, mattmahoney.net/dc/textdata, GFDL and CC BY-SA"
TEXT8 = RemoteFile(
    "text8",
    "http://mattmahoney.net/dc/text8.zip",
    "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
)
ENWIK8 = RemoteFile(
    "enwik8",
    "http://mattmahoney.net/dc/enwik8.zip",
    "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
)


@config
class Enwik8Config(StreamConfig):
    """The tokens, the blocks of training and the windows of evaluation."""

    unit: Unit = "byte"


@CORPORA("enwik8")
class Enwik8(TextStream):
    """10^8 bytes of Wikipedia with its markup, by byte."""

    Config = Enwik8Config
    origin = f"enwik8: {ORIGIN}"

    def texts(self) -> Sequence[memoryview]:
        text = read_published(ENWIK8, "enwik8", self.data_dir, self.name)
        bytewise = self.config.unit == "byte"
        return split_bytes(text, SIZES, characters=not bytewise, words=self.by_word)


@CORPORA("text8")
class Text8(TextStream):
    """10^8 letters and blanks of Wikipedia, by character."""

    @config
    class Config(StreamConfig):
        """The tokens, the blocks of training and the windows of evaluation."""

    origin = f"text8: {ORIGIN}"

    def texts(self) -> Sequence[memoryview]:
        text = read_published(TEXT8, "text8", self.data_dir, self.name)
        return split_bytes(text, SIZES, words=self.by_word)
