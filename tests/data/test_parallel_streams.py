"""Batches of parallel streams follow each other in the text, whatever its length."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import START
from lmzoo.data.blocks import (
    block_sizes,
    cut_blocks,
    cut_in_order,
    cut_windows,
    num_blocks,
    scored_text,
    stream_batches,
)
from tests.tiny import quick

SIZES = st.tuples(st.integers(1, 8), st.integers(1, 5), st.integers(0, 60))


@quick
@given(sizes=SIZES, random=st.booleans(), seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_block_t_plus_1_of_a_stream_follows_block_t(sizes, random, seed, epoch) -> None:
    block, streams, rest = sizes
    text = torch.arange(10, 10 + (block + 1) * streams + rest)  # each character occurs once
    data = cut_blocks(text, block, 0)
    own = block_sizes(data, streams, random=random, seed=seed, epoch=epoch)
    batches = [b.tokens for b in stream_batches(data, streams, own, seed=seed, epoch=epoch)]
    count = num_blocks(data, streams)
    assert sum(own) == count * (block + 1)
    assert [tokens.shape for tokens in batches] == [(streams, size + 1) for size in own]
    assert random or own == [block + 1] * count
    assert all((batches[0][:, 0] == START).tolist())
    for before, after in itertools.pairwise(batches):
        assert after[:, 0].equal(before[:, -1])
    scored = torch.cat([tokens[:, 1:] for tokens in batches], dim=1).flatten()
    first = int(scored[0]) - 10
    assert scored.equal(text[first : first + len(scored)])  # the streams follow each other, too
    assert len(text) - len(scored) < streams * (block + 1)


def test_the_offset_depends_on_seed_and_epoch_only() -> None:
    data = cut_blocks(torch.arange(10, 1000), 6, 0)

    def first(seed: int, epoch: int) -> int:
        return int(next(stream_batches(data, 4, [7] * 35, seed=seed, epoch=epoch)).tokens[0, 1])

    places = {(seed, epoch): first(seed, epoch) for seed in range(4) for epoch in range(4)}
    assert len(set(places.values())) > 4
    assert all(first(*place) == begin for place, begin in places.items())


@quick
@given(length=st.integers(9, 60), stride=st.integers(1, 8))
def test_the_text_of_windows_is_the_split(length: int, stride: int) -> None:
    text = torch.arange(10, 10 + length)
    assert scored_text(cut_windows(text, 8, stride)).equal(text)


@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_blocks_in_order_score_every_token_once(size: int) -> None:
    text = torch.arange(10, 30).view(2, 10)
    blocks = list(cut_in_order(text, [size] * -(-10 // size)))
    assert torch.cat([block[:, 1:] for block in blocks], dim=1).equal(text)
    assert blocks[0][:, 0].tolist() == [START, START]


def test_random_blocks_have_the_published_distribution() -> None:
    data = cut_blocks(torch.arange(10, 10 + 70 * 40_000), 69, 0)
    sizes = torch.tensor(block_sizes(data, 4, random=True, seed=0, epoch=0)[:-1], dtype=torch.float)
    long = sizes[sizes > 52]
    assert abs(len(long) / len(sizes) - 0.95) < 0.01
    assert abs(long.mean() - 69.5) < 0.3  # rounded down
    assert abs(long.std() - 5) < 0.2
    assert abs(sizes[sizes <= 52].mean() - 34.5) < 1
