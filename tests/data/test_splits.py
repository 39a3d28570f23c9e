"""Cuts of one text: by characters, bytes, documents; no character or word is divided."""

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data import splits
from lmzoo.data.corpus import open_corpus
from lmzoo.data.splits import (
    DocumentText,
    document_ends,
    interleave,
    read_documents,
    shuffled_cut,
    split_bytes,
    split_characters,
    split_documents,
)
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
)  # the ends of 1 to 4 bytes
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


sizes = st.integers(0, 60)
shares = st.lists(st.integers(1, 5), min_size=2, max_size=3).map(tuple)


@quick
@given(sizes, shares)
def test_interleave_deals_every_item_once_and_in_order(n, shares):
    parts = interleave(range(n), shares)
    assert sorted(item for part in parts for item in part) == list(range(n))
    assert all(part == sorted(part) for part in parts)
    bounds = [sum(shares[:i]) for i in range(len(shares) + 1)]
    for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
        assert all(low <= index % sum(shares) < high for index in part)


def test_interleave_4_1_holds_out_every_fifth_item():
    train, held_out = interleave(range(28_999), (4, 1))
    assert held_out == list(range(4, 28_999, 5))
    assert (len(train), len(held_out)) == (23_200, 5_799)


@quick
@given(sizes, st.floats(0, 1), st.integers(0, 2**31))
def test_shuffled_cut_deals_every_item_once(n, fraction, seed):
    first, rest = shuffled_cut(range(n), fraction, seed)
    assert sorted(first + rest) == list(range(n))
    assert len(first) == round(fraction * n)


def test_shuffled_cut_equals_the_split_of_torchtext():
    state = random.getstate()
    try:
        # S0 seeds the global generator; torchtext then draws one sample.
        random.seed(29)
        order = random.sample(range(1000), 1000)
    finally:
        random.setstate(state)
    assert shuffled_cut(range(1000), 0.8, 29) == (order[:800], order[800:])


def test_shuffled_cut_does_not_change_the_global_generator():
    state = random.getstate()
    shuffled_cut(range(50), 0.5, 1)
    assert random.getstate() == state


LINE = st.text("ab é", min_size=1, max_size=6).filter(str.strip)
DOCUMENT = st.lists(LINE, min_size=1, max_size=5).map("\n".join)
BLANK = st.sampled_from(["\n\n", "\n\n\n", "\n \t\n", "\n\r\n"])
NEAR = (0.8, 0.9)


@quick
@given(
    documents=st.lists(DOCUMENT, min_size=1, max_size=20),
    blank=BLANK,
    first=st.sampled_from(["", "\n", "\n \n\n"]),
    last=st.sampled_from(["", "\n", "\n\n", "\n \n"]),
)
def test_blank_lines_end_documents(documents, blank, last, first) -> None:
    text = (first + blank.join(documents) + last).encode()
    ends = document_ends(text)
    found = [text[a:b].decode().strip("\n\r\t ") for a, b in zip([0, *ends], ends, strict=False)]
    assert found == [document.strip("\n\r\t ") for document in documents]
    assert ends[-1] == len(text)


@quick
@given(sizes=st.lists(st.integers(1, 50), min_size=3, max_size=30))
def test_a_split_is_a_run_of_whole_documents(sizes) -> None:
    documents = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = DocumentText(b"".join(documents), ends).split(Path("text"), NEAR)
    assert b"".join(parts) == b"".join(documents)
    letters = [set(bytes(part)) for part in parts]
    assert all(letters)
    assert sum(map(len, letters)) == len(documents)  # no document is in two splits
    place = 0
    for part, share in zip(parts, NEAR, strict=False):
        place += len(part)
        wanted = share * ends[-1]
        nearer = [end for end in ends[:-1] if abs(end - wanted) < abs(place - wanted)]
        # A nearer end is not taken only where a split would have no document.
        assert all(end == ends[-2] or end <= len(parts[0]) for end in nearer)


@quick
@given(
    count=st.integers(3, 12),
    sizes=st.data(),
    kind=st.sampled_from(["text", "stream"]),
    folder=st.booleans(),
)
def test_the_splits_of_a_corpus_share_no_document(
    tmp_path_factory, count, sizes, kind, folder
) -> None:
    """Each document has a character of its own."""
    path = tmp_path_factory.mktemp("documents") / "text"
    lines = [sizes.draw(st.integers(1, 6)) for _ in range(count)]
    documents = [f"{chr(0x4E00 + i) * 12}\n" * n for i, n in enumerate(lines)]
    if folder:
        path.mkdir()
        for i, document in enumerate(documents):
            (path / f"{i:02}.txt").write_text(document, encoding="utf-8")
    else:
        path.write_text("\n".join(documents), encoding="utf-8")
    fields: dict[str, Any] = {"block": 5} if kind == "stream" else {"unit": "char", "length": 14}
    spec = {"name": kind, "path": str(path), "documents": not folder, **fields}
    corpus = open_corpus(spec)
    train = {t for t in corpus.train.ids.unique().tolist() if t > 3}
    decoded = {corpus.vocabulary.tokens[t] for t in train} - {"\n"}
    held_out = set(corpus.valid.ids.unique().tolist()) | set(corpus.test.ids.unique().tolist())
    assert not {corpus.vocabulary.tokens[t] for t in held_out if t > 3} - {"\n"}  # all are <unk>
    assert decoded == {chr(0x4E00 + i) for i in range(len(decoded))}
    assert len(decoded) <= count - 2


def test_a_text_without_the_option_is_cut_inside_a_document(tmp_path: Path) -> None:
    """The test above can fail: without documents, one is in training and in validation."""
    path = tmp_path / "text.txt"
    path.write_text("\n".join(f"{chr(0x4E00 + i) * 100}\n" for i in range(4)), encoding="utf-8")
    corpus = open_corpus({"name": "stream", "path": str(path), "block": 5})
    shared = set(corpus.train.ids.unique().tolist()) & set(corpus.valid.ids.unique().tolist())
    assert {corpus.vocabulary.tokens[t] for t in shared if t > 3} - {"\n"}


def test_the_files_of_a_folder_in_the_order_of_their_paths(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "one.txt").write_text("one")
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"two\n\nthree\n"))
    (folder / "a.txt").write_text("zero\n")
    (folder / "d.txt").write_text(" \n")
    (folder / ".hidden").write_text("hidden")
    text = read_documents(folder, blank_lines=False)
    assert text.text == b"zero\none\ntwo\n\nthree\n"
    assert text.ends == [5, 9, 20]
    assert read_documents(folder, blank_lines=True).ends == [5, 9, 14, 20]


def test_the_option_is_in_the_identity_only_if_it_is_set(tmp_path: Path) -> None:
    from lmzoo.data.corpus import CORPORA

    for kind in ("text", "stream"):
        plain = CORPORA.dump(CORPORA.parse({"name": kind, "path": "a.txt"}))
        assert "documents" not in plain
        fields = {"name": kind, "path": "a.txt", "documents": True}
        assert CORPORA.dump(CORPORA.parse(fields))["documents"] is True


@pytest.mark.parametrize("kind", ["text", "stream"])
def test_too_few_documents(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "two.txt"
    path.write_text("one\n\ntwo\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    with raises_user_error("two.txt has 2 documents", "at least 3"):
        open_corpus({"name": kind, "path": str(path), "documents": True})
    with raises_user_error("has no file with text"):
        open_corpus({"name": kind, "path": str(empty)})


def test_a_file_of_a_folder_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a line\n" * 5)
    (tmp_path / "b.txt").write_bytes(b"one\n\xff\xfe\n")
    with raises_user_error("b.txt line 2", "not UTF-8", "offset 4"):
        open_corpus(f"text:{tmp_path}")
