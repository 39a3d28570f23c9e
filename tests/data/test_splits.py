"""Cuts of one text by characters and bytes, the files of a folder, and cuts of lists."""

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data import splits
from lmzoo.data.corpus import open_corpus
from lmzoo.data.files import read_text
from lmzoo.data.splits import interleave, shuffled_cut, split_text
from tests.tiny import quick
from tests.user_errors import raises_user_error

texts = st.text(st.sampled_from("ab é日😀\n"), min_size=4, max_size=60)
SHARES = ((0.0, 0.5), (0.5, 0.8), (0.8, 1.0))


def decoded(parts):
    return [bytes(part).decode() for part in parts]


@quick
@given(texts, st.integers(1, 9))
def test_shares_are_those_of_characters(text, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "STRETCH", window)
        parts = decoded(split_text(text.encode(), SHARES))
    half = len(text) // 2
    end = int(0.8 * len(text))
    first, second, third = parts
    assert first == text[:half]
    assert second == text[half:end]
    assert third == text[end:]


@quick
@given(texts, st.booleans())
def test_no_word_is_divided(text, by_byte):
    cut = split_text(text.encode(), SHARES, by_byte=by_byte, words=True)
    parts = decoded(cut)
    words = []
    for part in parts:
        words += part.split()
    assert "".join(parts) == text
    assert words == text.split()


@quick
@given(texts)
def test_shares_are_those_of_bytes_up_to_a_character(text):
    raw = text.encode()
    exact = split_text(raw, SHARES, by_byte=True, whole=False)
    assert b"".join(exact) == raw
    first, second, _ = exact
    half = len(raw) // 2
    end = int(0.8 * len(raw))
    assert len(first) == half
    assert len(second) == end - half
    whole = split_text(raw, SHARES, by_byte=True)
    assert "".join(decoded(whole)) == text
    moved = len(first) - len(whole[0])
    # A character has at most four bytes.
    assert 0 <= moved < 4


@pytest.mark.parametrize("last", "aé\u07ffก\uffee😀")  # the ends of 1 to 4 bytes
def test_a_last_character_that_is_not_complete_is_left_out(last):
    def read(raw: bytes) -> bytes:
        return b"".join(split_text(raw, SHARES, by_byte=True))

    raw = f"ab {last}".encode()
    size = len(last.encode())
    assert read(raw) == raw
    for missing in range(1, size):
        assert read(raw[:-missing]) == b"ab "


@quick
@given(st.integers(0, 60), st.lists(st.integers(1, 5), min_size=2, max_size=3))
def test_interleave_deals_every_item_once_and_in_order(n, shares):
    parts = interleave(range(n), tuple(shares))
    # Which part each item of a deal goes to.
    deal = []
    for number, share in enumerate(shares):
        deal += [number] * share
    for number, part in enumerate(parts):
        expected = [item for item in range(n) if deal[item % len(deal)] == number]
        assert part == expected


def test_shuffled_cut_equals_the_split_of_torchtext():
    # S0 seeds the global generator; torchtext then draws one sample.
    order = random.Random(29).sample(range(1000), 1000)
    first, second = shuffled_cut(range(1000), 0.8, 29)
    assert first == order[:800]
    assert second == order[800:]


def test_the_files_of_a_folder_in_the_order_of_their_paths(tmp_path):
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "one.txt").write_text("one")
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"two\n\nthree\n"))
    (folder / "a.txt").write_text("zero\n")
    (folder / "d.txt").write_text(" \n")
    (folder / ".hidden").write_text("hidden")
    assert read_text(folder) == b"zero\none\ntwo\n\nthree\n"


def test_a_file_of_a_folder_that_is_not_utf8_is_named(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a line\n" * 5)
    (tmp_path / "b.txt").write_bytes(b"one\n\xff\xfe\n")
    with raises_user_error("b.txt line 2", "not UTF-8", "offset 4"):
        open_corpus(f"text:{tmp_path}")
