r"""WikiText-2 and WikiText-103: articles of Wikipedia in their published splits, by word.

    wikitext-2      2.09 million words train, 0.22 validate, 0.25 test
    wikitext-103    103 million words train; the same validation and test text

`version="tokens"` is the published text by word, in which rare words are `<unk>`, punctuation is
split off and every line ends with `<eos>`, here "\n". `version="raw"` has all words and no
`<unk>`; use it with characters, bytes or byte pairs. Published results are perplexities per word of
`version="tokens"`. The vocabulary is that of the training split.

The text is from Wikipedia under CC BY-SA. The archives are downloaded from wikitext.smerity.com,
the site of the first author, and checked, or read from `--data-dir`: wikitext-2-v1.zip (or
wikitext-2-raw-v1.zip, wikitext-103-v1.zip, wikitext-103-raw-v1.zip), or wiki.train.tokens,
wiki.valid.tokens and wiki.test.tokens (or .raw) in DIR or DIR/wikitext-2 (or the other folders of
the archives). The author publishes no SHA-256; those below are the ones that DataDeps.jl and
mlx-data record for the same archives.

Source: Merity et al. 2017 (arXiv:1609.07843).
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.download import RemoteFile
from lmzoo.data.published_text import read_published
from lmzoo.data.streams import StreamConfig, TextStream
from lmzoo.data.tokenisers.base import Unit

URL = "https://wikitext.smerity.com/"
SHA256 = {
    "wikitext-2-v1.zip": "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    "wikitext-2-raw-v1.zip": "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
    "wikitext-103-v1.zip": "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
    "wikitext-103-raw-v1.zip": "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
}


@config
class WikiTextConfig(StreamConfig):
    """The version, the tokens, the blocks of training and the windows of evaluation."""

    unit: Unit = "word"
    version: Literal["tokens", "raw"] = "tokens"


class WikiText(TextStream):
    """Base class that reads the published splits."""

    origin = "articles of Wikipedia (Merity et al. 2017, arXiv:1609.07843), CC BY-SA"
    name: ClassVar[str]

    def texts(self) -> Sequence[bytes]:
        raw = self.config.version == "raw"
        archive = f"{self.name}{'-raw' if raw else ''}-v1.zip"
        file = RemoteFile(f"{self.name}{'-raw' if raw else ''}", f"{URL}{archive}", SHA256[archive])
        suffix = "raw" if raw else "tokens"
        texts = [
            read_published(file, f"wiki.{split}.{suffix}", self.data_dir, self.name)
            for split in ("train", "valid", "test")
        ]
        # Published results count an end of line after the last line, too.
        return [text if text.endswith(b"\n") else text + b"\n" for text in texts]


@CORPORA("wikitext-2")
class WikiText2(WikiText):
    """Two million words of Wikipedia."""

    Config = WikiTextConfig


@CORPORA("wikitext-103")
class WikiText103(WikiText):
    """A hundred million words of Wikipedia."""

    @config
    class Config(WikiTextConfig):
        """The version, the tokens, the blocks of training and the windows of evaluation."""
