"""Batches as they are served: the same as gathered, padded to a multiple where asked for."""

import pytest
import torch

from lmzoo.data.batches import epoch_batches, gather_batch, iter_batches
from lmzoo.data.corpus import Sequences
from lmzoo.device import CPU


def _pairs() -> Sequences:
    generator = torch.Generator().manual_seed(0)
    lengths, source_lengths = (
        torch.randint(1, high, (23,), generator=generator) for high in (11, 7)
    )
    lengths[3] = 10
    tokens, source = (torch.randint(4, 9, (23, n), generator=generator) for n in (10, 6))
    return Sequences(tokens, lengths, (source, source_lengths))


def _columns(batch: Sequences) -> list[torch.Tensor]:
    return [batch.tokens, batch.lengths, *batch.given]


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_served_is_gathered(trim, given):
    data = _pairs()
    if not given:
        data = Sequences(data.tokens, data.lengths)
    order = epoch_batches(data.lengths, 5, seed=0, epoch=0)
    batches = list(iter_batches(data, order, CPU, trim=trim))
    assert [len(batch) for batch in batches] == [len(rows) for rows in order]
    for rows, batch in zip(order, batches, strict=True):
        expected = _columns(gather_batch(data, rows, trim=trim))
        assert all(map(torch.equal, _columns(batch), expected))


def test_widths_are_multiples_or_everything_there_is():
    data = _pairs()
    order = [torch.tensor([i]) for i in range(len(data))]
    seen = set()
    for i, batch in enumerate(iter_batches(data, order, CPU, multiple=4)):
        width, source_width = batch.tokens.shape[1], batch.given[0].shape[1]
        assert width == min(10, 4 * -(-max(2, int(data.lengths[i])) // 4))
        assert source_width == min(6, 4 * -(-int(data.given[1][i]) // 4))
        assert torch.equal(batch.tokens[0], data.tokens[i, :width])
        seen.add(width)
    assert seen == {4, 8, 10}
