"""Token strings and their ids. The first ids are always `<pad> <start> <end> <unk>`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from lmzoo.contract import UNKNOWN

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """A one-to-one map from token strings to ids 0..V-1."""

    tokens: tuple[str, ...]
    joiner: str = " "
    """Separates tokens in decoded text: a blank for words, empty for characters."""
    ids: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        assert self.tokens[: len(SPECIALS)] == SPECIALS
        assert len(set(self.tokens)) == len(self.tokens)
        self.ids.update({token: i for i, token in enumerate(self.tokens)})

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of the tokens; unknown tokens become `<unk>`."""
        return [self.ids.get(token, UNKNOWN) for token in tokens]

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
        return self.joiner.join(tokens)


def build_vocabulary(
    sentences: Iterable[Sequence[str]],
    *,
    joiner: str = " ",
    limit: int = 40_000,
    min_count: int = 1,
) -> Vocabulary:
    """Build a vocabulary of at most `limit` tokens by falling count, ties in alphabetical order.

    The special tokens come first and count towards `limit`. Tokens that occur fewer than
    `min_count` times are left out.
    """
    counts = Counter(chain.from_iterable(sentences))
    return rank_tokens(counts, joiner=joiner, limit=limit, min_count=min_count)


def rank_tokens(
    counts: Mapping[str, int], *, joiner: str = " ", limit: int = 40_000, min_count: int = 1
) -> Vocabulary:
    """Build the vocabulary of counted tokens; see `build_vocabulary`."""
    ranked = sorted((t for t in counts if counts[t] >= min_count), key=lambda t: (-counts[t], t))
    kept = [t for t in ranked if t not in SPECIALS][: limit - len(SPECIALS)]
    return Vocabulary((*SPECIALS, *kept), joiner)
