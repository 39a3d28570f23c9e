"""The size of a text, and what reading a user's file gave and lost.

    bits per character = Σ NLL / (ln 2 · characters)         bits per byte = Σ NLL / (ln 2 · bytes)
    perplexity per word = exp(Σ NLL / words)                 a newline counts as a word

Σ NLL is the loss of all scored tokens of the test split in nats. The text of a sequence is what its
scored tokens stand for: words as they are spelled (after lower-casing, if the corpus lower-cases),
also those that are `<unk>`; one blank between two words; a newline for `<end>`. A model pays for
`<unk>` and not for the spelling of the word. So bits per character of corpora by word compare
models by word with one vocabulary; beside a model by character they are too low.

Of a contiguous text, the raw text is counted, whatever its tokens are: perplexity per word of a
model by byte pair is comparable with that of a model by word. Tokens after a cut are neither scored
nor counted. A character is a Unicode code point; bytes are those of UTF-8.

Every command that reads a text of the user begins with its facts. What is above a limit is a
warning, which the ranking and the report repeat:

    LOST    of the tokens stand after the place where their sequence is cut
    SEEN    of the test sequences also stand in training; of a stream, lines with this share of the
            characters of the test text (`SEEN_TEXT`), because short lines of a text are often equal
    UNREAD  of the test tokens are `<unk>`: they are not read

Source: Mikolov et al. 2010 and Merity et al. 2017 (arXiv:1609.07843; an end of line is a word);
Mikolov et al. 2012 (bits per character); Gao et al. 2020 (arXiv:2101.00027; bits per byte).
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lmzoo.base.plain import Fields, FieldsDict, Texts
from lmzoo.base.printed import counted


class TextSize(NamedTuple):
    """The size of the scored text of a split."""

    characters: int
    bytes: int
    words: int | None
    """Words between blanks, and newlines, as PTB and WikiText count them. A cut line ends a word.
    None for residues, which form no words."""


def text_size(texts: Iterable[tuple[str, bool]], *, words: bool = True) -> TextSize:
    """Return the size of texts, given as (text, whether a newline ends it), with their words."""
    characters = 0
    size = 0
    count = 0
    for text, ends in texts:
        # `<end>` counts as a character, as a newline would.
        characters += len(text) + ends
        # In ASCII a character is a byte: nothing need be encoded.
        if text.isascii():
            size += len(text) + ends
        else:
            size += len(text.encode()) + ends
        if words:
            count += count_words(text) + ends
    if not words:
        # None, not 0: a corpus of residues has no words.
        return TextSize(characters, size, None)
    return TextSize(characters, size, count)


def count_words(text: str) -> int:
    """Return the number of words and newlines."""
    return len(text.split()) + text.count("\n")


LOST = 0.05
SEEN = 0.01
SEEN_TEXT = 0.1
UNREAD = 0.05
WARNING = "WARNING: "
DEALT = {
    "hash": "split by a hash of each {unit}, equal {unit}s together",
    "single": "split by a hash, too few different {unit}s to keep equal ones together",
    "place": "split by place in the text",
}
"""How sequences are split -> the words of the block."""
NEIGHBOURS = (
    "; neighbouring lines of a running text are in different splits: for such a text use "
    "stream:PATH"
)


@dataclass(frozen=True)
class TextFacts:
    """What reading the user's text gave and lost; plain JSON types."""

    unit: str
    """What a sequence is in the file: line, record or pair."""
    dealt: str
    """How sequences are split: a key of `DEALT`."""
    seen: int
    """Test sequences that also stand in training, as they are cut; lines of a stream."""
    seen_share: float
    """Share of the test sequences, or of the characters of a stream, that `seen` is."""
    blank: int = 0
    """Blank lines, which are left out."""
    notes: Texts = ()
    """What was converted, removed or is unusual."""
    splits: tuple[int, int, int] = (0, 0, 0)
    """Sequences that train, validate and test; lines of a stream."""
    tokens: int = 0
    """Tokens of all sequences before they are cut; in pairs, of both sides."""
    room: int = 0
    """Tokens of a sequence that are kept; 0: all."""
    longest: int = 0
    """Tokens of the longest sequence."""
    cut: int = 0
    """Sequences that are cut; in pairs, sides."""
    lost: int = 0
    """Tokens after a cut."""
    left_out: int = 0
    """Words of the training text without a token."""
    unknown: float = 0.0
    """Share of the test tokens that are `<unk>`; in pairs, that of the side with more."""

    @classmethod
    def from_json(cls, fields: Fields) -> "TextFacts":
        """Return the facts from their fields as plain JSON types."""
        # JSON has lists only.
        whole = dict(fields)
        for name in ("notes", "splits"):
            whole[name] = tuple(fields[name])
        return cls(**whole)

    def as_json(self) -> FieldsDict:
        """Return the fields, and the warnings as `warnings`."""
        return dataclasses.asdict(self) | {"warnings": self.warnings}

    @property
    def lost_line(self) -> str:
        """What is cut; "" if nothing is."""
        if not self.cut:
            return ""
        total = sum(self.splits)
        stream = ""
        # A running text has lines that are no sentences: its tokens need not be cut.
        if self.unit == "line":
            stream = ", or use stream:PATH"
        of = f"{self.cut:,} of {total:,} {self.unit}s"
        if self.unit == "pair":
            of = f"{self.cut:,} sides of {total:,} pairs"
        return (
            f"{of} are longer than {self.room} tokens and are cut: "
            f"{_percent(self.lost, self.tokens)} of the tokens ({self.lost:,}) are lost; "
            f"set corpus.length={self.longest + 2}{stream}"
        )

    @property
    def unknown_line(self) -> str:
        """What share of the test tokens is not read, and the units without unknown words."""
        if self.unknown <= UNREAD:
            return ""
        char = " or corpus.unit=char"
        if self.unit == "pair":
            char = ""
        share = _percent(self.unknown, 1)
        return f"{share} of the test tokens are <unk>, which hides them; set corpus.unit=bpe{char}"

    @property
    def seen_line(self) -> str:
        """How many test sequences also stand in training."""
        test = self.splits[2]
        share = _percent(self.seen, test)
        return f"{self.seen:,} of {test:,} test {self.unit}s ({share}) also stand in training"

    @property
    def warnings(self) -> list[str]:
        """The lines about what is above a limit."""
        lines = []
        if self.lost > LOST * self.tokens:
            lines.append(self.lost_line)
        if self.unknown > UNREAD:
            lines.append(self.unknown_line)
        # Short lines of a running text repeat by chance; whole sequences should not.
        most = SEEN_TEXT
        if self.room:
            most = SEEN
        if self.seen_share > most:
            lines.append(f"{self.seen_line}; remove duplicates")
        return lines

    def lines(self, token: str, vocab: int) -> list[str]:
        """Return the block without what `<unk>` is; `token` names the unit of a token."""
        train, valid, test = self.splits
        blank = ""
        if self.blank:
            blank = f", {counted(self.blank, 'blank line')} left out"
        dealt = DEALT[self.dealt].format(unit=self.unit)
        if self.unit == "line" and self.dealt != "place":
            dealt += NEIGHBOURS
        lines = [
            f"{sum(self.splits):,} {self.unit}s ({train:,} train, {valid:,} validate, {test:,} "
            f"test){blank}; {self.tokens:,} {token}s, V={vocab:,}",
            dealt,
        ]
        lines.extend(self.notes)
        if self.left_out:
            lines.append(
                f"{self.left_out:,} different {token}s of the training text have no token "
                "and are <unk>; corpus.vocab and corpus.min_count decide which"
            )
        warnings = self.warnings
        for line in (self.lost_line, self.unknown_line, self.seen_line):
            if not line:
                continue
            # A warning is the line of a fact, and what to do.
            found = [text for text in warnings if text.startswith(line)]
            if found:
                lines.append(WARNING + found[0])
            else:
                lines.append(line)
        return lines


def _percent(part: float, whole: int) -> str:
    return f"{part / max(1, whole):.1%}".replace("%", " %")
