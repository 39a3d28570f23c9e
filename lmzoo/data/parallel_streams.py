"""A contiguous text as parallel streams, for models that carry their state from block to block.

    stream b     c_{o+bN} .. c_{o+(b+1)N-1}                N = blocks · (L + 1), o is the offset
    block 0      <start> c_0 .. c_L                        all L + 1 characters are scored
    block t      c_{t(L+1)-1} .. c_{(t+1)(L+1)-1}          the first is the last of block t - 1

A batch has block t of every stream, and the next batch has block t + 1. An epoch is one pass. Its
offset is a function of (seed, epoch), so that the blocks of two epochs begin at other places; the
characters before the offset and behind the last stream, fewer than a batch, are left out.

Mikolov et al. 2010; Merity et al. 2018 (arXiv:1708.02182).
"""

from collections.abc import Iterator

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from lmzoo.contract import START
from lmzoo.data.blocks import Blocks, Stream
from lmzoo.data.corpus import Sequences
from lmzoo.functional.seeding import derive_seed


def num_blocks(data: Blocks, streams: int) -> int:
    """Return the blocks of each stream; 0 if the text is shorter than one batch."""
    assert data.stream is not None
    return len(data.stream) // (streams * data.size)


def stream_batches(data: Blocks, streams: int, *, seed: int, epoch: int) -> Iterator[Sequences]:
    """Yield the batches of an epoch, in order: B = `streams` blocks of T = L + 2 tokens each."""
    assert data.stream is not None
    size, count = data.size, num_blocks(data, streams)
    spare = len(data.stream) - streams * count * size
    generator = torch.Generator().manual_seed(derive_seed(seed, "streams", epoch))
    offset = int(torch.randint(spare + 1, (), generator=generator, device="cpu"))
    text = data.stream[offset : offset + streams * count * size].view(streams, -1)
    lengths = torch.full((streams,), size + 1, device=text.device)
    for tokens in cut_in_order(text, size):
        yield Sequences(tokens, lengths)


def cut_in_order(text: Integer[Tensor, "B n"], size: int) -> Iterator[Int[Tensor, "B _"]]:
    """Yield blocks of at most `size` scored tokens each, with the token before as the first."""
    start = text.new_full((len(text), 1), START)
    for begin in range(0, text.shape[1], size):
        before = text[:, begin - 1 : begin] if begin else start
        yield torch.cat([before, text[:, begin : begin + size]], dim=1).long()


def scored_text(windows: Sequences) -> Stream:
    """Return the text of evaluation windows, which score every character once, in order."""
    assert windows.scored is not None
    return windows.ids[windows.scored]
