"""Split a training epoch into batches of sequences of similar length.

The batches are a function of (seed, epoch) alone, so a run that is interrupted between epochs
continues exactly as if it had not been. Sequences are shuffled, sorted by length within pools of
`POOL` batches, cut into batches, and the batches are shuffled. Batches then need little padding.
No metric depends on padding.

The seed decides which sequences share a batch. The order of the batches depends on the epoch
alone, so pack members with different seeds train on long batches at the same steps, and no member
pads short sequences to the length of another member's long ones.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lmzoo.data.corpus import Sequences
from lmzoo.functional.seeding import derive_seed
from lmzoo.kernels.device import CPU

POOL = 16
"""Batches per pool. A larger pool pads less, a smaller pool mixes lengths more."""


def epoch_batches(
    lengths: Int[Tensor, "N"], batch: int, *, seed: int, epoch: int
) -> list[Int[Tensor, "b"]]:
    """Return the row indices of every batch of one epoch; every row occurs once."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    lengths = lengths.cpu()  # the order must not depend on the device of the data
    order = torch.randperm(len(lengths), generator=generator, device="cpu")
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(POOL * batch)]
    batches = [rows for pool in pools for rows in pool.split(batch)]
    shared_generator = torch.Generator().manual_seed(derive_seed(0, "lengths", epoch))
    batch_order = torch.randperm(len(batches), generator=shared_generator, device="cpu")
    return [batches[i] for i in batch_order.tolist()]


def iter_batches(
    part: Sequences,
    order: Sequence[Int[Tensor, "_"]],
    device: torch.device,
    *,
    trim: bool = True,
    few_widths: bool = False,
) -> Iterator[Sequences]:
    """Yield the batches of `order` on `device`, each trimmed to its longest sequence.

    All widths are computed on the CPU beforehand, so no batch waits for the device.

    Args:
        part: The sequences of a split.
        order: Row indices of each batch, as `epoch_batches` returns them.
        device: Where the batches are used.
        trim: Remove columns that are padding in the whole batch.
        few_widths: Round the width of a trimmed batch up to that of the longest sequence, to its
            half, or to its quarter, so that there are at most three widths.
    """
    moved, rows = part.to(device), torch.cat(list(order)).to(device)
    scored = moved.scored
    widths = [
        [_width(column, batch, least, trim=trim, few=few_widths) for batch in order]
        for column, least in zip(_columns(part, CPU), (2, 0), strict=False)
    ]
    for batch_rows, *width in zip(
        rows.split([len(batch) for batch in order]), *widths, strict=True
    ):
        columns = zip(_columns(moved, device), width, strict=True)
        targets, *sources = (
            (tokens[:, :w][batch_rows].long(), lengths[batch_rows])
            for (tokens, lengths), w in columns
        )
        mask = None if scored is None else scored[:, : targets[0].shape[1]][batch_rows]
        yield Sequences(*targets, *sources, scored=mask)


def _columns(part: Sequences, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Return (tokens, lengths) of the sequences and, if present, of their sources."""
    pairs = [(part.ids, part.lengths)]
    if part.sources:
        source, lengths = part.sources
        pairs.append((source, lengths))
    return [(tokens, lengths.to(device)) for tokens, lengths in pairs]


def _width(
    column: tuple[Tensor, Tensor], rows: Tensor, least: int, *, trim: bool, few: bool
) -> int:
    tokens, lengths = column
    if not trim:
        return tokens.shape[1]
    whole = tokens.shape[1]
    longest = min(whole, max(least, int(lengths[rows].max())))
    if not few:
        return longest
    return next(width for width in (-(-whole // 4), -(-whole // 2), whole) if width >= longest)


def pack_batches(
    part: Sequences, batch: int, members: Sequence[tuple[int, int]]
) -> tuple[Sequences, list[list[Int[Tensor, "b"]]]]:
    """Return the training sequences of pack members, and the row indices of their batches.

    `members` are pairs (seed, epoch). Where epochs have different sequences, those of all members'
    epochs are joined.
    """
    parts = {epoch: part.for_epoch(epoch) for epoch in sorted({epoch for _, epoch in members})}
    first = next(iter(parts.values()))
    begins, data = dict.fromkeys(parts, 0), first
    if any(other is not first for other in parts.values()):
        begins = {epoch: i * len(first) for i, epoch in enumerate(parts)}
        data = Sequences(
            torch.cat([other.ids for other in parts.values()]),
            torch.cat([other.lengths for other in parts.values()]),
        )
    orders = [
        [
            rows + begins[epoch]
            for rows in epoch_batches(first.lengths, batch, seed=seed, epoch=epoch)
        ]
        for seed, epoch in members
    ]
    return data, orders


def gather_batch(part: Sequences, rows: Int[Tensor, "b"], *, trim: bool = True) -> Sequences:
    """Return these rows, trimmed to the longest of them; with `trim=False`, fully padded."""
    lengths = part.lengths[rows]
    longest = max(2, int(lengths.max())) if trim else part.ids.shape[1]
    sources = _gather_sources(part, rows, trim=trim)
    scored = None if part.scored is None else part.scored[rows, :longest]
    return Sequences(part.ids[rows, :longest].long(), lengths, sources, scored)


def _gather_sources(part: Sequences, rows: Int[Tensor, "b"], *, trim: bool) -> tuple[Tensor, ...]:
    if not part.sources:
        return ()
    source, lengths = (column[rows] for column in part.sources)
    return (source[:, : int(lengths.max())] if trim else source), lengths
