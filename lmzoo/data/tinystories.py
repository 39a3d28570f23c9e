"""TinyStories: short stories in the words of small children, by byte pair.

    version="v1"   1.92 GB train: stories of GPT-3.5 and GPT-4
    version="v2"   2.23 GB train: stories of GPT-4 alone

The published splits are training and validation. There is no test split: here the first half of the
validation stories validates and the others test. `<|endoftext|>` follows every story; it is part of
the text, and one token (`separator`), as in the usual vocabularies.

The stories are from huggingface.co/datasets/roneneldan/TinyStories under CDLA-Sharing-1.0. The
files are downloaded and checked, or read from `--data-dir`: TinyStories-train.txt and
TinyStories-valid.txt, or TinyStoriesV2-GPT4-train.txt and TinyStoriesV2-GPT4-valid.txt, in DIR or
DIR/tinystories. The SHA-256 are those that Hugging Face publishes for this revision.

Source: Eldan & Li 2023 (arXiv:2305.07759).
"""

from collections.abc import Sequence
from typing import Literal

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.download import RemoteFile, locate
from lmzoo.data.files import read_bytes
from lmzoo.data.streams import StreamConfig, TextStream
from lmzoo.data.text_splits import split_documents
from lmzoo.data.tokenisers.base import Unit

REVISION = "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64"
URL = f"https://huggingface.co/datasets/roneneldan/TinyStories/resolve/{REVISION}/"
NAMES = {"v1": "TinyStories", "v2": "TinyStoriesV2-GPT4"}
SHA256 = {
    "TinyStories-train.txt": "c5cf5e22ff13614e830afbe61a99fbcbe8bcb7dd72252b989fa1117a368d401f",
    "TinyStories-valid.txt": "94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4",
    "TinyStoriesV2-GPT4-train.txt": (
        "6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443"
    ),
    "TinyStoriesV2-GPT4-valid.txt": (
        "6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d"
    ),
}
SEPARATOR = b"<|endoftext|>\n"


@config
class TinyStoriesConfig(StreamConfig):
    """The version, the tokens, the blocks of training and the windows of evaluation."""

    unit: Unit = "bpe"
    separator: str = "<|endoftext|>"
    version: Literal["v1", "v2"] = "v1"


@CORPORA("tinystories")
class TinyStories(TextStream):
    """Stories by GPT-3.5 and GPT-4 with the vocabulary of small children."""

    Config = TinyStoriesConfig
    origin = "TinyStories (Eldan & Li 2023, arXiv:2305.07759), CDLA-Sharing-1.0"

    def texts(self) -> Sequence[bytes | memoryview]:
        train, valid = map(self._read, ("train", "valid"))
        return [train, *split_documents(valid, SEPARATOR)]

    def _read(self, split: str) -> bytes:
        name = f"{NAMES[self.config.version]}-{split}.txt"
        file = RemoteFile("tinystories", f"{URL}{name}", SHA256[name])
        return read_bytes(locate(file, self.data_dir, self.name))
