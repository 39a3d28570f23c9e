"""Cuts of one text: by characters, bytes, documents; no character or word is divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data import text_splits
from lmzoo.data.splits import split_bytes, split_characters, split_documents
from tests.tiny import quick

texts = st.text(st.sampled_from("ab é日😀\n"), min_size=4, max_size=60)
SHARES = ((0.0, 0.5), (0.5, 0.8), (0.8, 1.0))


def decoded(parts):
    return [bytes(part).decode() for part in parts]


@quick
@given(texts, st.integers(1, 9))
def test_shares_are_those_of_characters(text, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_splits, "STRETCH", window)
        parts = decoded(split_characters(text.encode(), SHARES))
    n = len(text)
    assert parts == [text[: n // 2], text[n // 2 : int(0.8 * n)], text[int(0.8 * n) :]]


@quick
@given(texts, st.booleans())
def test_no_word_is_divided(text, by_bytes):
    raw = text.encode()
    if by_bytes:
        parts = decoded(split_bytes(raw, (5, 3, 2), words=True))
    else:
        parts = decoded(split_characters(raw, SHARES, words=True))
    assert "".join(parts) == text
    assert [word for part in parts for word in part.split()] == text.split()


@quick
@given(texts)
def test_bytes_are_those_of_the_sizes_up_to_a_character(text):
    raw = text.encode()
    exact = split_bytes(raw, (90, 5, 5), characters=False)
    assert [len(part) for part in exact[:2]] == [
        len(raw) * 90 // 100,
        len(raw) * 95 // 100 - len(raw) * 90 // 100,
    ]
    whole = decoded(split_bytes(raw, (90, 5, 5)))
    assert "".join(whole) == text
    assert 0 <= len(exact[0]) - len(whole[0].encode()) < 4


@pytest.mark.parametrize(
    "last", ["a", "é", "\u07ff", "ก", "\uffee", "😀"]
)  # 1 to 4 bytes, ends of each
def test_a_last_character_that_is_not_complete_is_left_out(last):
    raw = ("ab " + last).encode()
    assert b"".join(map(bytes, split_bytes(raw, (1, 1, 1)))) == raw
    for missing in range(1, len(last.encode())):
        assert b"".join(map(bytes, split_bytes(raw[:-missing], (1, 1, 1)))) == b"ab "


def test_documents_are_halved_by_number():
    text = b"long long document;a;b;c;d;"
    first, second = split_documents(text, b";")
    assert bytes(first) == b"long long document;a;"
    assert bytes(second) == b"b;c;d;"
