"""Contiguous text: blocks of every epoch, windows that score every character once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import START
from lmzoo.data.blocks import cut_blocks, cut_windows
from lmzoo.data.corpus import open_corpus
from tests.tiny import quick
from tests.user_errors import raises_user_error

STREAM = torch.arange(4, 4 + 53)  # every character occurs once


def consecutive(first: int, count: int) -> list[int]:
    """Return ids of characters that follow each other in a text."""
    return list(range(first, first + count))


@quick
@given(n=st.integers(8, 60), block=st.integers(1, 7), data=st.data())
def test_windows_score_every_character_once_with_enough_context(n, block, data):
    stride = data.draw(st.integers(1, block))
    stream = torch.arange(4, 4 + n)
    windows = cut_windows(stream, block, stride)
    scored = windows.tokens[windows.scored]
    assert scored.equal(stream)
    assert windows.num_scored == n
    for tokens, is_scored in zip(windows.tokens, windows.scored, strict=True):
        start, *text = tokens.tolist()
        assert start == START
        assert text == consecutive(text[0], block + 1)
        first_scored = int(is_scored.nonzero()[0])
        # Only the first window begins without characters before it.
        if text[0] > 4:
            assert first_scored - 1 >= block + 1 - stride


@quick
@given(n=st.integers(5, 60), block=st.integers(1, 4), epoch=st.integers(0, 9))
def test_a_pass_has_every_character_at_most_once_and_leaves_out_less_than_two_blocks(
    n, block, epoch
):
    stream = torch.arange(4, 4 + n)
    blocks = cut_blocks(stream, block, 0)
    part = blocks.for_epoch(epoch)
    seen = part.tokens[:, 1:].flatten().tolist()
    assert seen == consecutive(seen[0], len(seen))
    assert seen[0] >= 4
    assert seen[-1] < 4 + n
    # The blocks of an epoch begin at a random place.
    assert n - len(seen) < 2 * (block + 1)
    assert part.num_scored == blocks.num_scored == len(seen)


def test_random_blocks_begin_everywhere_and_differ_between_epochs():
    blocks = cut_blocks(STREAM, 4, 500)
    first = blocks.for_epoch(0).tokens
    second = blocks.for_epoch(1).tokens
    again = blocks.for_epoch(0).tokens
    begins = first[:, 1].unique()
    # The last four places are too late for a block of 4 and its target.
    assert begins.tolist() == consecutive(4, 53 - 4)
    steps = first[:, 1:].diff()
    assert steps.eq(1).all()
    assert not first.equal(second)
    assert first.equal(again)


@pytest.fixture
def text(tmp_path):
    """A text of 400 lines, in which every digit follows from the one before it."""
    lines = ["0123456789"[i % 7 :] for i in range(400)]
    path = tmp_path / "digits.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_data_of_a_stream_stay_the_same(text):
    """A change of this value gives the runs on every contiguous text another identity."""
    assert open_corpus(f"stream:{text}").fingerprint == "60ffa50135956bee"


def test_short_texts_are_refused(tmp_path):
    with raises_user_error("stream:PATH"):
        open_corpus("stream")
    short = tmp_path / "short.txt"
    short.write_text("to be or not to be" * 10)
    fields = {"name": "stream", "path": str(short)}
    # The validation split has 5 % of 180 characters.
    with raises_user_error("stream", "validation", "9 characters", "needs 10", "corpus.block"):
        open_corpus(fields | {"block": 9})
    shorter = open_corpus(fields | {"block": 8})
    assert len(shorter.valid) == 1
