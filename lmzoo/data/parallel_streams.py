"""A contiguous text as parallel streams, for models that carry their state from block to block.

    stream b     c_{o+bN} .. c_{o+(b+1)N-1}                N = blocks · (L + 1), o is the offset
    block 0      <start> c_0 .. c_L                        all L + 1 characters are scored
    block t      c_{t(L+1)-1} .. c_{(t+1)(L+1)-1}          the first is the last of block t - 1

A batch has block t of every stream, and the next batch has block t + 1. An epoch is one pass. Its
offset is a function of (seed, epoch), so that the blocks of two epochs begin at other places; the
characters before the offset and behind the last stream, fewer than a batch, are left out.

With random lengths, also a function of (seed, epoch), each block but the last of an epoch has

    max(5, ⌊n⌋) tokens,   n ~ N(m, 5²),   m = L + 1 with probability 0.95, else (L + 1) / 2

Mikolov et al. 2010; Merity et al. 2018 (arXiv:1708.02182).
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from lmzoo.base.seeds import derive_seed
from lmzoo.contract import START
from lmzoo.data.blocks import Blocks, Stream
from lmzoo.data.corpus import Sequences


def num_blocks(data: Blocks, streams: int) -> int:
    """Return the blocks of each stream; 0 if the text is shorter than one batch."""
    assert data.stream is not None
    return len(data.stream) // (streams * data.size)


def block_sizes(
    data: Blocks, streams: int, *, random: bool, seed: int, epoch: int
) -> Sequence[int]:
    """Return the scored tokens of each block of a stream, in order; their sum is N."""
    size, count = data.size, num_blocks(data, streams)
    if not random:
        return [size] * count
    generator = torch.Generator().manual_seed(derive_seed(seed, "block sizes", epoch))
    sizes, rest = [], size * count
    while rest:
        short, noise = torch.rand((), generator=generator), torch.randn((), generator=generator)
        mean = size if short < 0.95 else size / 2
        sizes.append(min(rest, max(5, int(mean + 5 * noise))))
        rest -= sizes[-1]
    return sizes


def stream_batches(
    data: Blocks, streams: int, sizes: Sequence[int], *, seed: int, epoch: int
) -> Iterator[Sequences]:
    """Yield the batches of an epoch, in order: B = `streams` blocks of these sizes."""
    assert data.stream is not None
    length = streams * sum(sizes)
    generator = torch.Generator().manual_seed(derive_seed(seed, "streams", epoch))
    spare = len(data.stream) - length
    offset = int(torch.randint(spare + 1, (), generator=generator, device="cpu"))
    text = data.stream[offset : offset + length].view(streams, -1)
    for tokens in cut_in_order(text, sizes):
        yield Sequences(tokens, torch.full((streams,), tokens.shape[1], device=text.device))


def cut_in_order(
    text: Integer[Tensor, "B n"], sizes: Iterable[int]
) -> Iterator[Int[Tensor, "B _"]]:
    """Yield blocks of these numbers of scored tokens, with the token before as the first."""
    before, begin = text.new_full((len(text), 1), START), 0
    for size in sizes:
        block = text[:, begin : begin + size]
        yield torch.cat([before, block], dim=1).long()
        before, begin = block[:, -1:], begin + size


def scored_text(windows: Sequences) -> Stream:
    """Return the text of evaluation windows, which score every character once, in order."""
    assert windows.scored is not None
    return windows.ids[windows.scored]
