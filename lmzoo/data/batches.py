"""The order of a training epoch: which sequences make up each batch.

The order is a function of (seed, epoch) alone, so a run cut off between epochs goes on
as if nothing had happened. Batches hold sequences of like length: sequences are
shuffled, sorted by length within pools of several batches, cut into batches, and the
batches shuffled. Padding then costs little, and no metric depends on it.

Which sequences stand together is the seed's; when batches of long ones come is the epoch's
alone. So members that are trained together come to them at the same step, and none pads its
short ones to another's long ones.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lmzoo.contract import stream
from lmzoo.data.corpus import Sequences
from lmzoo.device import CPU

POOL = 16
"""Batches per pool: enough to cut padding, few enough to keep batches varied."""


def epoch_batches(
    lengths: Int[Tensor, "N"], batch: int, *, seed: int, epoch: int
) -> list[Int[Tensor, "b"]]:
    """Row indices of every batch of one epoch, each row once."""
    generator = torch.Generator().manual_seed(stream(seed, "order", epoch))
    lengths = lengths.cpu()  # the order is drawn and sorted alike wherever the data lie
    order = torch.randperm(len(lengths), generator=generator, device="cpu")
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(POOL * batch)]
    batches = [rows for pool in pools for rows in pool.split(batch)]
    of_all = torch.Generator().manual_seed(stream(0, "lengths", epoch))
    turns = torch.randperm(len(batches), generator=of_all, device="cpu")
    return [batches[i] for i in turns.tolist()]


def iter_batches(
    part: Sequences,
    order: Sequence[Int[Tensor, "_"]],
    device: torch.device,
    *,
    trim: bool = True,
    multiple: int = 1,
) -> Iterator[Sequences]:
    """The batches of this order on the device, each as long as its longest sequence needs.

    That is, up to the next `multiple`. How long they are is read off beforehand, on the
    CPU, so that no batch waits for the device.
    """
    here, rows = part.to(device), torch.cat(list(order)).to(device)
    widths = [
        [_width(column, one, least, trim=trim, multiple=multiple) for one in order]
        for column, least in zip(_columns(part, CPU), (2, 0), strict=False)
    ]
    for chosen, *width in zip(rows.split([len(one) for one in order]), *widths, strict=True):
        columns = zip(_columns(here, device), width, strict=True)
        kept, *given = (
            (tokens[:, :w][chosen], lengths[chosen]) for (tokens, lengths), w in columns
        )
        yield Sequences(*kept, *given)


def _columns(part: Sequences, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """What is padded and the lengths of it: the sequences, and their sources if there are."""
    pairs = [(part.tokens, part.lengths)]
    if part.given:
        source, lengths = part.given
        pairs.append((source, lengths))
    return [(tokens, lengths.to(device)) for tokens, lengths in pairs]


def _width(
    column: tuple[Tensor, Tensor], rows: Tensor, least: int, *, trim: bool, multiple: int
) -> int:
    tokens, lengths = column
    if not trim:
        return tokens.shape[1]
    longest = max(least, int(lengths[rows].max()))
    return min(tokens.shape[1], -(-longest // multiple) * multiple)


def gather_batch(part: Sequences, rows: Int[Tensor, "b"], *, trim: bool = True) -> Sequences:
    """These rows; without `trim` they keep their full padded length."""
    lengths = part.lengths[rows]
    longest = max(2, int(lengths.max())) if trim else part.tokens.shape[1]
    return Sequences(part.tokens[rows, :longest], lengths, _sources(part, rows, trim=trim))


def _sources(part: Sequences, rows: Int[Tensor, "b"], *, trim: bool) -> tuple[Tensor, ...]:
    """The rows' sources, cut to the longest of them, and their lengths."""
    if not part.given:
        return ()
    source, lengths = (column[rows] for column in part.given)
    return (source[:, : int(lengths.max())] if trim else source), lengths
