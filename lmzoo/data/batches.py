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
from itertools import repeat

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lmzoo.base.seeds import derive_seed
from lmzoo.data.corpus import Sequences
from lmzoo.kernels.device import CPU

POOL = 16
"""Batches per pool. A larger pool pads less, a smaller pool mixes lengths more."""


def epoch_batches(
    lengths: Int[Tensor, "N"], batch: int, *, seed: int, epoch: int
) -> list[Int[Tensor, "b"]]:
    """Return the row indices of every batch of one epoch; every row occurs once."""
    rows = _sorted_rows(lengths, batch, [(seed, epoch)])
    batches = rows[0].split(batch)
    order = _batch_order(len(batches), epoch)
    return [batches[i] for i in order.tolist()]


def _sorted_rows(
    lengths: Int[Tensor, "N"], batch: int, members: Sequence[tuple[int, int]]
) -> Int[Tensor, "P N"]:
    """Return the rows of an epoch of each (seed, epoch), shuffled and sorted within pools."""
    orders = []
    for seed, epoch in members:
        generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
        orders.append(torch.randperm(len(lengths), generator=generator, device="cpu"))
    shuffled = torch.stack(orders).numpy()
    found = lengths.cpu().numpy()  # the order must not depend on the device of the data
    if len(found) and found.max() <= np.iinfo(np.int16).max:
        found = found.astype(np.int16)  # NumPy sorts these by radix, several times as fast
    size = POOL * batch
    for begin in range(0, len(lengths), size):
        pool = shuffled[:, begin : begin + size]
        # Stable: rows of equal length stay in random order.
        by_length = found[pool].argsort(1, kind="stable")
        pool[:] = np.take_along_axis(pool, by_length, 1)
    return torch.from_numpy(shuffled)


def _batch_order(count: int, epoch: int) -> Int[Tensor, "n"]:
    seed = derive_seed(0, "lengths", epoch)
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator, device="cpu")


def iter_batches(
    part: Sequences,
    order: Sequence[Int[Tensor, "_"]],
    device: torch.device,
    *,
    trim: bool = True,
    few_widths: bool = False,
) -> Iterator[Sequences]:
    """Return the batches of `order` on `device`, each trimmed to its longest sequence.

    All widths are computed on the CPU at the call, so no batch waits for the device.

    Args:
        part: The sequences of a split.
        order: Row indices of each batch, as `epoch_batches` returns them.
        device: Where the batches are used.
        trim: Remove columns that are padding in the whole batch.
        few_widths: Round the width of a trimmed batch up to that of the longest sequence, to its
            half, or to its quarter, so that there are at most three widths.
    """
    columns = [(width, lengths.to(CPU)) for width, lengths in _columns(part)]
    widths = [_widths(columns, batch, trim=trim, few=few_widths) for batch in order]
    moved = part.to(device)
    # One copy to the device for all batches.
    rows = torch.cat(list(order)).to(device)
    batches = rows.split([len(batch) for batch in order])
    return map(_take, repeat(moved), batches, widths)


def gather_batch(part: Sequences, rows: Int[Tensor, "b"], *, trim: bool = True) -> Sequences:
    """Return these rows, trimmed to the longest of them; with `trim=False`, fully padded."""
    widths = _widths(_columns(part), rows, trim=trim)
    return _take(part, rows, widths)


def _columns(part: Sequences) -> list[tuple[int, Tensor]]:
    """Return the padded width and the lengths of the sequences and of their sources."""
    pairs: list[tuple[Tensor, ...]] = [(part.ids, part.lengths)]
    if part.sources:
        pairs.append(part.sources)
    return [(tokens.shape[1], lengths) for tokens, lengths in pairs]


def _widths(
    columns: list[tuple[int, Tensor]],
    rows: Tensor,
    *,
    trim: bool,
    few: bool = False,
) -> list[int]:
    """Return the width of a batch, and that of its sources."""
    widths = []
    # A sequence has at least `<start>` and one token; a source may be empty.
    for (whole, lengths), least in zip(columns, (2, 0), strict=False):
        width = whole
        if trim:
            width = min(whole, max(least, int(lengths[rows].max())))
        if few:
            width = _rounded_up(width, whole)
        widths.append(width)
    return widths


def _rounded_up(width: int, whole: int) -> int:
    """Return a quarter of the whole width, a half or all of it: the least that is enough."""
    for divisor in (4, 2):
        part = -(-whole // divisor)  # rounded up
        if width <= part:
            return part
    return whole


def _take(part: Sequences, rows: Tensor, widths: list[int]) -> Sequences:
    sources: tuple[Tensor, ...] = ()
    if part.sources:
        source, lengths = part.sources
        sources = (source[:, : widths[1]][rows], lengths[rows])
    # Columns first, then rows: an index copies only what is left.
    width = widths[0]
    scored = None
    if part.scored is not None:
        scored = part.scored[:, :width][rows]
    ids = part.ids[:, :width][rows].long()
    return Sequences(ids, part.lengths[rows], sources, scored)


Rows = Int[Tensor, "P b"]
Mask = Bool[Tensor, "P b"] | None


def pack_batches(
    part: Sequences,
    batch: int,
    members: Sequence[tuple[int, int]],
    *,
    full: bool = False,
) -> tuple[Sequences, list[tuple[Rows, Mask]]]:
    """Return the training sequences of pack members, and the row indices of their batches.

    `members` are pairs (seed, epoch), which may repeat. Where epochs have different sequences,
    those of all members' epochs are joined. One batch of an epoch is smaller, at a step that
    depends on the epoch. It is padded with its own first sequence, up to the largest batch of the
    step or, with `full`, of the epoch. The mask is False at padding; None if no batch is padded.
    """
    epochs = sorted({epoch for _, epoch in members})
    parts = [part.for_epoch(epoch) for epoch in epochs]
    first = parts[0]
    data, begins = _joined(parts, epochs)
    rows = _member_rows(first.lengths, batch, members, begins)
    count = -(-len(first) // batch)  # rounded up
    orders = {epoch: _batch_order(count, epoch) for epoch in epochs}
    starts = torch.stack([orders[epoch] for _, epoch in members], 1) * batch
    # All steps at once: operations on the rows of one step would cost more than the step of a GPU.
    sizes = (len(first) - starts).clamp(max=batch)
    within = torch.arange(min(batch, len(first)), device=CPU)
    masks = within < sizes[..., None]
    # The place of padding is that of the first sequence of its batch.
    places = starts[..., None] + within * masks
    places = places.movedim(1, 0)
    chosen = rows.gather(1, places.flatten(1)).view_as(places)
    chosen = chosen.movedim(1, 0)
    if full:
        widths = [len(within)] * len(sizes)
    else:
        widths = sizes.amax(1).tolist()
    batches = []
    for own, mask, width in zip(chosen, masks, widths, strict=True):
        mask = mask[:, :width]
        if mask.all():
            mask = None
        batches.append((own[:, :width], mask))
    return data, batches


def _member_rows(
    lengths: Int[Tensor, "N"],
    batch: int,
    members: Sequence[tuple[int, int]],
    begins: dict[int, int],
) -> Int[Tensor, "P N"]:
    """Return the rows of each member in its order, among the sequences of all epochs."""
    # Members of one seed and epoch have the same order: it is computed once.
    distinct = list(dict.fromkeys(members))
    rows = _sorted_rows(lengths, batch, distinct)
    first_rows = [begins[epoch] for _, epoch in distinct]
    rows += torch.tensor(first_rows, device=CPU)[:, None]
    places = {member: i for i, member in enumerate(distinct)}
    return rows[[places[member] for member in members]]


def _joined(parts: Sequence[Sequences], epochs: Sequence[int]) -> tuple[Sequences, dict[int, int]]:
    """Return the sequences of all epochs, and the row at which those of each one begin."""
    first = parts[0]
    if all(other is first for other in parts):
        return first, dict.fromkeys(epochs, 0)
    ids = torch.cat([other.ids for other in parts])
    lengths = torch.cat([other.lengths for other in parts])
    begins = {epoch: i * len(first) for i, epoch in enumerate(epochs)}
    return Sequences(ids, lengths), begins
