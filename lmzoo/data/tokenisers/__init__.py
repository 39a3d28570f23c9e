"""Tokenisers of contiguous texts, one per file: characters, words, bytes and byte-pair encodings.

    char   a Unicode code point           vocabulary of the training split, others are `<unk>`
    word   a word, or a newline           vocabulary of the training split, others are `<unk>`
    byte   a byte of UTF-8                256 tokens, no `<unk>`
    bpe    a piece of a word              trained on the training split, or a given `tokenizer.json`

`base.py` has what they share.
"""

from lmzoo.data.tokenisers.base import Tokeniser, TokeniserConfig
from lmzoo.data.tokenisers.bpe import Subwords
from lmzoo.data.tokenisers.byte import Bytes
from lmzoo.data.tokenisers.char import Characters
from lmzoo.data.tokenisers.word import Words

TOKENISERS: dict[str, type[Tokeniser]] = {
    "char": Characters,
    "word": Words,
    "byte": Bytes,
    "bpe": Subwords,
}


def new_tokeniser(config: TokeniserConfig) -> Tokeniser:
    """Return the tokeniser of a config."""
    return TOKENISERS[config.unit](config)
