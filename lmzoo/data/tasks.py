"""Base class of generated tasks: sequences of which some tokens are scored.

    sequence    <start> s_1 .. s_n            no <end>
    scored      the tokens that loss and accuracy count: the answers

All other tokens are input: the model reads them, and no loss is computed for them. Upstream
generators write the answer as a label beside the input. Here it is the next token, because a model
of this package is a density of sequences. So a model reads its earlier answers, corrected. A task
of one's own is one file with a `GeneratedTask`, as `recall.py` and `state_tracking.py` are.

No validation or test sequence is in the training split, and none is in both. Short sequences, of
which training has all, are therefore in the training split only.

The input determines the answers: the greatest accuracy of a model is 1, the least loss 0.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from pydantic import Field

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import PAD, START
from lmzoo.data.corpus import SPLITS, Corpus, CorpusSource, DrawnConfig, EntropyFloor, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary

BLANK = -1
"""Symbol after the end of a sequence in the rows of `draw`."""
ATTEMPTS = 20
"""How often held-out sequences are drawn again that another split has."""

Symbols = Int[np.ndarray, "_ _"]
Scored = Bool[np.ndarray, "_ _"]


@config
class TaskConfig(DrawnConfig):
    """Sequences per split, and the random seed."""

    train: int = Field(10_000, ge=1)


class GeneratedTask(CorpusSource):
    """A corpus whose sequences are drawn from a seed; a subclass defines `symbols` and `draw`."""

    citation: ClassVar[str]
    """The paper of the task, for `Corpus.source`."""

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols 0, 1, ..."""

    @abstractmethod
    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        """Draw sequences without `<start>` as symbols, `BLANK` after the end, and what is scored.

        `split` is train, valid or test; a task about length draws longer test sequences.
        """

    def load(self) -> Corpus:
        parts: dict[str, tuple[Symbols, Scored]] = {}
        # Training comes first: it alone has the short sequences.
        for split in SPLITS:
            others = [tokens for tokens, _ in parts.values()]
            parts[split] = self._draw_distinct(split, others)
        longest = max(tokens.shape[1] for tokens, _ in parts.values())
        encoded = [_encode(tokens, scored, 1 + longest) for tokens, scored in parts.values()]
        train, valid, test = encoded
        return Corpus(
            self.name,
            Vocabulary(SPECIALS + self.symbols),
            train,
            valid,
            test,
            unit="symbol",
            source=f"pseudo-random, after {self.citation}; nothing to license",
            # The input determines the answers.
            floor=EntropyFloor(0.0, 0.0),
            ceiling=1.0,
            ends=False,
        )

    def _draw_distinct(self, split: str, others: list[Symbols]) -> tuple[Symbols, Scored]:
        """Draw the sequences of a split, none of which is in the other splits.

        A `UserError` says that there are too few.
        """
        # Each split has its own stream: its draws do not depend on the sizes of the others.
        random = np.random.default_rng(derive_seed(self.config.seed, self.name, split))
        count = getattr(self.config, split)
        known = set[bytes]()
        for tokens in others:
            known.update(_keys(tokens))
        every_tokens = []
        every_scored = []
        missing = count
        for _ in range(ATTEMPTS):
            tokens, scored = self.draw(random, count, split)
            new = np.array([key not in known for key in _keys(tokens)])
            every_tokens.append(tokens[new][:missing])
            every_scored.append(scored[new][:missing])
            missing -= len(every_tokens[-1])
            if not missing:
                return np.concatenate(every_tokens), np.concatenate(every_scored)
        raise UserError(
            f"{self.name}: {count} {split} sequences are asked for, and {count - missing} were "
            "found that no other split has; set fewer sequences or longer ones"
        )


def _keys(tokens: Symbols) -> list[bytes]:
    """Return a key of each sequence, which does not depend on the padding."""
    # Types of one size: a generator may draw smaller ones.
    return [row[row != BLANK].astype(np.int32).tobytes() for row in tokens]


def _encode(symbols: Symbols, scored: Scored, length: int) -> Sequences:
    """Return the sequences with `<start>`, padded to `length`."""
    count, n = symbols.shape
    tokens = torch.full((count, length), PAD, dtype=torch.int64)
    tokens[:, 0] = START
    # The special tokens have the first ids.
    ids = np.where(symbols == BLANK, PAD, symbols + len(SPECIALS))
    tokens[:, 1 : n + 1] = torch.from_numpy(ids.astype(np.int64))
    mask = torch.zeros(count, length, dtype=torch.bool)
    mask[:, 1 : n + 1] = torch.from_numpy(scored)
    sizes = (symbols != BLANK).sum(1)
    lengths = torch.from_numpy(sizes.astype(np.int64) + 1)
    return Sequences(tokens, lengths, scored=mask)


def distinct(random: np.random.Generator, count: int, size: int, choices: int) -> Symbols:
    """Return (count, size) numbers below `choices`, different within a row and uniform."""
    # Where rows would often have repetitions, a random order is faster than drawing again.
    if size * size > choices:
        return random.random((count, choices)).argsort(axis=1)[:, :size]
    rows = random.integers(0, choices, (count, size))
    while True:
        gaps = np.diff(np.sort(rows, axis=1))
        repeated = (gaps == 0).any(1)
        if not repeated.any():
            return rows
        rows[repeated] = random.integers(0, choices, (int(repeated.sum()), size))
