"""Token strings and their ids. The first ids are fixed: `<pad> <start> <end> <unk>`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lmzoo.contract import UNKNOWN

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """An injection from strings to ids 0..V-1."""

    tokens: tuple[str, ...]
    joiner: str = " "
    """What stands between tokens in text: a blank for words, nothing for characters."""
    ids: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        assert self.tokens[: len(SPECIALS)] == SPECIALS
        assert len(set(self.tokens)) == len(self.tokens)
        self.ids.update({token: i for i, token in enumerate(self.tokens)})

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of the tokens; unknown ones become `<unk>`."""
        return [self.ids.get(token, UNKNOWN) for token in tokens]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to `<end>` or the first pad, without special tokens."""
        words = []
        for i in ids:
            if self.tokens[i] in ("<end>", "<pad>"):
                break
            if self.tokens[i] != "<start>":
                words.append(self.tokens[i])
        return self.joiner.join(words)


def by_frequency(
    sentences: Iterable[Sequence[str]],
    *,
    joiner: str = " ",
    limit: int = 40_000,
    min_count: int = 1,
) -> Vocabulary:
    """The specials, then tokens by falling count; ties in order of the alphabet."""
    counts = Counter(token for sentence in sentences for token in sentence)
    ranked = sorted((t for t in counts if counts[t] >= min_count), key=lambda t: (-counts[t], t))
    kept = [t for t in ranked if t not in SPECIALS][: limit - len(SPECIALS)]
    return Vocabulary((*SPECIALS, *kept), joiner)
