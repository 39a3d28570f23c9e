"""Tiny Shakespeare by character: 1,115,394 characters of plays, one contiguous text.

    split="standard"   90 % train, 5 % validate, 5 % test
    split="nanogpt"    90 % train; the last 10 % both validate and test

nanoGPT has no test split: its loss is the validation loss of the last 10 %, 111,540 characters.
`split="nanogpt"` gives this number. Its test loss is that of the same characters, so a model that
is chosen by validation loss has a test loss that is too low.

The plays are in the public domain. The file is downloaded from github.com/karpathy/char-rnn and
checked, or read from `--data-dir`.

Source: Karpathy 2015 (char-rnn); github.com/karpathy/nanoGPT (`shakespeare_char`).
"""

from collections.abc import Sequence
from typing import Literal

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.download import RemoteFile, locate
from lmzoo.data.files import read_bytes
from lmzoo.data.streams import STANDARD, StreamConfig, TextStream
from lmzoo.data.text_splits import Shares, split_characters

FILE = RemoteFile(
    "tinyshakespeare",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    # Computed from a local copy; the publisher gives no checksum.
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)

NANOGPT: Shares = ((0.0, 0.9), (0.9, 1.0), (0.9, 1.0))


@config
class ShakespeareConfig(StreamConfig):
    """The split, the blocks of training and the windows of evaluation."""

    split: Literal["standard", "nanogpt"] = "standard"


@CORPORA("shakespeare_char")
class ShakespeareCharacters(TextStream):
    """Plays of Shakespeare by character, one contiguous text of 1,115,394 characters.

    They are in the public domain. By default 90 % is for training, 5 % for validation and 5 % for
    testing. The text is read in windows; no character is unknown. From
    github.com/karpathy/char-rnn (Karpathy 2015).
    """

    Config = ShakespeareConfig
    origin = "plays of Shakespeare, github.com/karpathy/char-rnn, public domain"

    def texts(self) -> Sequence[memoryview]:
        shares = STANDARD if self.config.split == "standard" else NANOGPT
        text = read_bytes(locate(FILE, self.data_dir, self.name))
        return split_characters(text, shares, words=self.by_word)
