"""Token strings and their ids. The first ids are always `<pad> <start> <end> <unk>`.

A word of a text that is spelled like one of the first three is an ordinary word: its token has an
apostrophe, `<pad>'`, and so have `<pad>'`, `<pad>''` and so on, so that no two words share a token.
`<unk>` in a text is the unknown word, as in PTB and WikiText.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from lmzoo.base.errors import UserError
from lmzoo.contract import UNKNOWN

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
RESERVED = SPECIALS[:UNKNOWN]
"""Special tokens that no word of a text becomes."""


def token_of(word: str) -> str:
    """Return the token of a word: the word, marked if it is spelled like a special token."""
    return f"{word}'" if word.rstrip("'") in RESERVED else word


def word_of(token: str) -> str:
    """Return the word of a token that is not special; the inverse of `token_of`."""
    return token[:-1] if token.endswith("'") and token.rstrip("'") in RESERVED else token


@dataclass(frozen=True)
class Vocabulary:
    """A one-to-one map from token strings to ids 0..V-1."""

    tokens: tuple[str, ...]
    joiner: str = " "
    """Separates tokens in decoded text: a blank for words, empty for characters."""
    left_out: int = field(default=0, compare=False)
    """Words of the training text that have no token, because they are rare or beyond the limit."""
    ids: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Word -> id, and `<unk>`."""

    def __post_init__(self) -> None:
        assert self.tokens[: len(SPECIALS)] == SPECIALS
        assert len(set(self.tokens)) == len(self.tokens)
        first = self.tokens[: len(RESERVED)]
        self.ids.update({token: i for i, token in enumerate(self.tokens)})
        for token in first:
            del self.ids[token]
        for token in [token for token in self.ids if word_of(token) != token]:
            self.ids[word_of(token)] = self.ids.pop(token)

    def __repr__(self) -> str:
        shown = " ".join(self.tokens[len(SPECIALS) :][:8])
        return f"vocabulary of {len(self):,}: {shown} ..."

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of the tokens; unknown tokens become `<unk>`."""
        return list(map(self.ids.get, tokens, repeat(UNKNOWN)))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text up to `<end>` or the first `<pad>`, without `<start>`."""
        tokens = []
        for i in ids:
            if self.tokens[i] in ("<end>", "<pad>"):
                break
            if self.tokens[i] != "<start>":
                tokens.append(self.tokens[i])
        return self.join(tokens)

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text: its words, or its characters if the joiner is empty."""
        return text.split() if self.joiner else list(text)

    def join(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens, which are not `<start>`, `<end>` or `<pad>`."""
        return self.joiner.join(map(word_of, tokens))


def build_vocabulary(
    sentences: Iterable[Sequence[str]], *, joiner: str = " ", limit: int = 0, min_count: int = 1
) -> Vocabulary:
    """Build a vocabulary of at most `limit` tokens by falling count, ties in alphabetical order.

    The special tokens come first and count towards `limit`; 0 is no limit. Tokens that occur fewer
    than `min_count` times are left out.
    """
    counts = Counter(chain.from_iterable(sentences))
    return rank_tokens(counts, joiner=joiner, limit=limit, min_count=min_count)


def rank_tokens(
    counts: Mapping[str, int], *, joiner: str = " ", limit: int = 0, min_count: int = 1
) -> Vocabulary:
    """Build the vocabulary of counted words; see `build_vocabulary`.

    Raises:
        UserError: The limit leaves no token but the special ones.
    """
    if 0 < limit <= len(SPECIALS):
        raise UserError(
            f"vocab={limit} has room for special tokens only ({' '.join(SPECIALS)}); set at least "
            f"{len(SPECIALS) + 1}, or 0 for no limit"
        )
    words = [word for word in counts if word != SPECIALS[UNKNOWN]]
    ranked = sorted((w for w in words if counts[w] >= min_count), key=lambda w: (-counts[w], w))
    kept = ranked[: max(0, limit - len(SPECIALS))] if limit else ranked
    tokens = (*SPECIALS, *map(token_of, kept))
    return Vocabulary(tokens, joiner, left_out=len(words) - len(kept))
