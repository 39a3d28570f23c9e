"""BabyLM: the language that a child hears and reads, in the splits of the challenge of 2023.

    track="strict-small"   10 million words train
    track="strict"         100 million words train; the same validation and test text

Ten domains, among them speech to children, dialogue, subtitles and books, follow one another in the
order of their names, in each split. 10 million words validate (`babylm_dev`) and 10 million test.

Each domain has its own licence, which the README of the archive lists; the BNC is distributed under
fair dealing. The archive is downloaded from babylm.github.io, or read from `--data-dir`:
babylm_data.zip, or the folders babylm_10M or babylm_100M, babylm_dev and babylm_test in DIR or
DIR/babylm_data, with files *.train, *.dev and *.test. No checksum of the archive is published. So
the SHA-256 of the first download is recorded, and the file must have it from then on.

Source: Warstadt et al. 2023 (arXiv:2301.11796).
"""

from collections.abc import Sequence
from typing import Literal

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.download import RemoteFile
from lmzoo.data.published_text import read_published
from lmzoo.data.streams import StreamConfig, TextStream
from lmzoo.data.tokenisers.base import Unit

FILE = RemoteFile(
    "babylm_data",
    "https://github.com/babylm/babylm.github.io/raw/main/babylm_data.zip",
    first_use=True,
)
FOLDERS = {"strict-small": "babylm_10M", "strict": "babylm_100M"}


@config
class BabyLMConfig(StreamConfig):
    """The track, the tokens, the blocks of training and the windows of evaluation."""

    unit: Unit = "bpe"
    track: Literal["strict-small", "strict"] = "strict-small"


@CORPORA("babylm")
class BabyLM(TextStream):
    """Ten or a hundred million words that a child could hear or read."""

    Config = BabyLMConfig
    origin = "BabyLM challenge 2023 (Warstadt et al. 2023, arXiv:2301.11796); a licence per domain"

    def texts(self) -> Sequence[bytes]:
        patterns = (
            f"{FOLDERS[self.config.track]}/*.train",
            "babylm_dev/*.dev",
            "babylm_test/*.test",
        )
        return [read_published(FILE, p, self.data_dir, self.name) for p in patterns]
