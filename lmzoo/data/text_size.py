r"""Characters, bytes and words of scored text, for losses that do not depend on the tokens.

    bits per character = Σ NLL / (ln 2 · characters)         bits per byte = Σ NLL / (ln 2 · bytes)
    perplexity per word = exp(Σ NLL / words)                 a newline counts as a word

Σ NLL is the loss of all scored tokens of the test split in nats. The text of a sequence is what its
scored tokens stand for:

    word     its spelling after lower-casing, if the corpus lower-cases
    `<unk>`  the spelling of the word that it replaces
    blank    one between two words
    `<end>`  a newline

A model pays for `<unk>` and not for the spelling of the word. So bits per character of corpora by
word compare models by word with one vocabulary; beside a model by character they are too low.

Of a contiguous text, it is the raw text that is counted, whatever its tokens are: perplexity per
word of a model by byte pair is comparable with that of a model by word. Source of the newline:
Mikolov et al. 2010 and Merity et al. 2017 (arXiv:1609.07843) score the end of a line as a word.

Tokens after a cut are neither scored nor counted. A character is a Unicode code point; bytes are
those of UTF-8. By character, and by residue, every scored token is one character, so that bits per
character are nats per token / ln 2.

Source: Mikolov et al. 2012 (bits per character); Gao et al. 2020 (arXiv:2101.00027; bits per byte).
"""

from collections.abc import Iterable
from typing import NamedTuple


class TextSize(NamedTuple):
    """The size of the scored text of a split."""

    characters: int
    bytes: int
    words: int | None
    """Words between blanks, and newlines, as PTB and WikiText count them. A cut line ends a word.
    None for residues, which form no words."""


def text_size(texts: Iterable[tuple[str, bool]], *, words: bool = True) -> TextSize:
    """Return the size of texts, given as (text, whether a newline ends it), with their words."""
    characters = size = count = 0
    for text, ends in texts:
        characters += len(text) + ends
        size += (len(text) if text.isascii() else len(text.encode())) + ends
        count += count_words(text) + ends if words else 0
    return TextSize(characters, size, count if words else None)


def count_words(text: str) -> int:
    """Return the number of words and newlines."""
    return len(text.split()) + text.count("\n")
