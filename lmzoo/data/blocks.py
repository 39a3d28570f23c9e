"""Contiguous text: random blocks, and windows with context.

    block     <start> c_i .. c_{i+L}                    all L + 1 characters are scored
    window    <start> c_i .. c_{i+L-s} .. c_{i+L}       the last s characters are scored

L is the block length. An epoch of training is either one pass, in blocks that do not overlap and
begin at a random offset, or `blocks` blocks at random places, as nanoGPT draws them. The places are
a function of the epoch alone, so an interrupted run continues exactly, and all members of a pack
read the same tensor; the order of the blocks depends on the seed.

Windows move by the stride s ≤ L, so every character of a split is scored exactly once, and each
sees at least L − s + 1 characters before it; only those at the beginning of the split see fewer.
With s = L, a character sees 1 to L characters, as in nanoGPT's estimate of the loss. A smaller
stride costs L/s times as much and gives a lower loss.

Source: github.com/karpathy/nanoGPT (random blocks); Al-Rfou et al. 2019 (arXiv:1808.04444; stride).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from lmzoo.base.seeds import derive_seed
from lmzoo.contract import START
from lmzoo.data.corpus import Sequences

ROWS = 2**16
"""Blocks that are cut at a time."""
Stream = Integer[Tensor, "n"]
"""Token ids of a text, without special tokens."""


@dataclass(frozen=True)
class Blocks(Sequences):
    """The training blocks of a stream; `ids` are those of one pass at offset 0."""

    stream: Stream | None = None
    count: int = 0
    """Blocks of an epoch, at random places; 0: one pass."""

    @property
    def size(self) -> int:
        """Scored characters of a block, L + 1."""
        return self.ids.shape[1] - 1

    def for_epoch(self, epoch: int) -> Sequences:
        """Return the blocks of an epoch, a function of its number alone."""
        assert self.stream is not None
        size = self.size
        generator = torch.Generator().manual_seed(derive_seed(0, "blocks", epoch))
        if self.count:
            places = len(self.stream) - size + 1
            # On the CPU: a seed gives other numbers on a GPU.
            begins = torch.randint(places, (self.count,), generator=generator, device="cpu")
        else:
            spare = len(self.stream) - self._per_epoch * size
            offset = torch.randint(min(size, spare + 1), (), generator=generator, device="cpu")
            begins = offset + size * torch.arange(self._per_epoch, device="cpu")
        return _cut(self.stream, begins, size)

    @property
    def num_scored(self) -> int:
        """Number of scored characters of an epoch, the same in every epoch."""
        return self._per_epoch * self.size

    @property
    def _per_epoch(self) -> int:
        """Blocks of an epoch; a pass leaves room for every offset below the size of a block."""
        assert self.stream is not None
        if self.count:
            return self.count
        return max(1, (len(self.stream) - self.size + 1) // self.size)


def cut_blocks(stream: Stream, block: int, count: int) -> Blocks:
    """Return the training blocks of a stream."""
    size = block + 1
    first = _cut(stream, torch.arange(0, len(stream) - block, size), size)
    return Blocks(first.ids, first.lengths, stream=stream, count=count)


def cut_windows(stream: Stream, block: int, stride: int) -> Sequences:
    """Return the evaluation windows of a stream; `scored` is True for every character once."""
    size = block + 1
    # The last window ends with the text, and may score fewer characters than the others.
    ends = torch.arange(size, len(stream) + stride, stride).clamp_max(len(stream))
    new = ends.diff(prepend=torch.zeros(1, dtype=torch.int64))  # characters of no earlier window
    windows = _cut(stream, ends - size, size)
    scored = torch.arange(size + 1) > (size - new)[:, None]
    return Sequences(windows.ids, windows.lengths, scored=scored, context=True)


def _cut(stream: Stream, begins: Int[Tensor, "N"], size: int) -> Sequences:
    """Return the stretches of `size` tokens that begin there, with `<start>` before each."""
    begins = begins.to(stream.device)
    stretches = stream.unfold(0, size, 1)
    ids = stream.new_full((len(begins), size + 1), START)
    for first in range(0, len(begins), ROWS):  # an index makes a copy
        rows = slice(first, first + ROWS)
        ids[rows, 1:] = stretches[begins[rows]]
    lengths = torch.full((len(ids),), size + 1, device=stream.device)
    return Sequences(ids, lengths)


def scored_text(windows: Sequences) -> Stream:
    """Return the text of evaluation windows, which score every character once, in order."""
    assert windows.scored is not None
    return windows.ids[windows.scored]
