"""The cache of encoded texts: equal ids, reuse, damage, changed files, no space."""

import random

import pytest

from lmzoo.data import streams, tokenisers
from lmzoo.data.corpus import open_corpus
from lmzoo.data.tokenisers import TOKENISERS
from lmzoo.data.vocabulary import build_vocabulary

TEXT = "".join(random.Random(0).choices("abc é漢\n😀", [9, 5, 5, 3, 2, 1, 2, 1], k=3000)) + "ß"
UNITS = tuple(TOKENISERS)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(streams, "CACHED_FROM", 0)
    monkeypatch.setattr(tokenisers, "STRETCH", 700)
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def load(file, unit="char", **fields):
    return open_corpus({"name": "stream", "path": str(file), "unit": unit, "block": 8, **fields})


def files(file):
    return sorted((file.parent / "cache" / "tokens").iterdir())


def forbid_encoding(monkeypatch):
    monkeypatch.setattr(streams, "_encode", lambda *_: pytest.fail("encoded again"))


def test_ids_and_vocabulary_are_those_of_the_plain_encoding(file):
    vocabulary = build_vocabulary([TEXT[:2700]], joiner="")
    for _ in range(2):  # encoded, then from the cache
        corpus = load(file)
        assert corpus.vocabulary == vocabulary
        assert corpus.train.stream.tolist() == vocabulary.encode(TEXT[:2700])
        assert corpus.test.num_scored == corpus.test_size.characters == 151
        assert corpus.test_size.bytes == len(TEXT[2850:].encode())
    assert len(files(file)) == 1


@pytest.mark.parametrize("unit", UNITS)
def test_a_corpus_from_the_cache_is_the_same(file, unit, monkeypatch):
    first = load(file, unit)
    forbid_encoding(monkeypatch)
    again = load(file, unit)
    assert again.fingerprint == first.fingerprint
    assert again.vocabulary == first.vocabulary
    assert again.test_size == first.test_size
    assert again.vocabulary.split("a b\nc") == first.vocabulary.split("a b\nc")


def flip(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
        lambda data: flip(data, len(data) // 2),
        lambda data: flip(data, data.index(b'"sizes": [') + 11),
        lambda _: b"[]",
    ],
)
def test_a_damaged_file_is_encoded_again(file, damage, monkeypatch):
    expected = load(file).fingerprint
    (path,) = files(file)
    path.write_bytes(damage(path.read_bytes()))
    assert load(file).fingerprint == expected
    forbid_encoding(monkeypatch)
    assert load(file).fingerprint == expected


def test_without_a_writable_cache_the_ids_are_in_memory(file):
    (file.parent / "cache").write_text("a file where the cache should be")
    assert load(file).fingerprint == load(file).fingerprint
