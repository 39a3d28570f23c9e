"""The cache of encoded texts: equal ids, reuse, damage, changed files, no space."""

import random

import pytest

from lmzoo.data import token_cache
from lmzoo.data.open import open_corpus
from lmzoo.data.token_cache import Parts, encode_file
from lmzoo.data.vocabulary import build_vocabulary

PARTS = Parts(((0.0, 0.8), (0.8, 0.9), (0.9, 1.0)))
TEXT = "".join(random.Random(0).choices("abc é漢\n😀", [9, 5, 5, 3, 2, 1, 2, 1], k=3000)) + "ß"


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(token_cache, "CACHED_FROM", 0)
    monkeypatch.setattr(token_cache, "CHUNK", 700)
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def folders(file):
    return sorted((file.parent / "cache" / "tokens").iterdir())


def forbid_encoding(monkeypatch):
    monkeypatch.setattr(token_cache, "_encode", lambda *_: pytest.fail("encoded again"))


def test_ids_and_vocabulary_are_those_of_the_plain_encoding(file):
    vocabulary = build_vocabulary([TEXT[:2400]], joiner="")
    for _ in range(2):  # encoded, then from the cache
        encoded = encode_file(file, PARTS)
        assert encoded.vocabulary == vocabulary
        assert encoded.ids.tolist() == vocabulary.encode(TEXT)
        assert list(encoded.bytes) == [
            len(TEXT[a:b].encode()) for a, b in ((0, 2400), (2400, 2700), (2700, 3001))
        ]
    assert len(folders(file)) == 1


def test_a_text_is_encoded_once_until_it_changes(file, monkeypatch):
    encode_file(file, PARTS)
    with monkeypatch.context() as patch:
        forbid_encoding(patch)
        encode_file(file, PARTS)
    file.write_text(TEXT[::-1], encoding="utf-8")
    changed = encode_file(file, PARTS)
    assert changed.vocabulary.tokens[int(changed.ids[0])] == "ß"
    assert len(folders(file)) == 2


@pytest.mark.parametrize("damage", ["ids.bin", "meta.json"])
def test_a_damaged_folder_is_encoded_again(file, damage, monkeypatch):
    expected = encode_file(file, PARTS).ids.tolist()
    path = folders(file)[0] / damage
    path.write_bytes(path.read_bytes()[:-3])
    assert encode_file(file, PARTS).ids.tolist() == expected
    forbid_encoding(monkeypatch)
    assert encode_file(file, PARTS).ids.tolist() == expected


def test_a_change_of_the_ids_does_not_reach_the_file(file):
    encode_file(file, PARTS)
    encode_file(file, PARTS).ids.fill_(0)
    assert encode_file(file, PARTS).ids.max() > 0


def test_without_a_writable_cache_the_ids_are_in_memory(file):
    (file.parent / "cache").write_text("a file where the cache should be")
    assert encode_file(file, PARTS).ids.tolist() == encode_file(file, PARTS).ids.tolist()


def test_an_interrupted_write_leaves_nothing_that_is_read(file, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(token_cache.json, "dumps", fail)
        encode_file(file, PARTS)
    assert folders(file) == []


def test_a_corpus_from_the_cache_is_the_same(file, monkeypatch):
    first = open_corpus(f"stream:{file}").fingerprint
    forbid_encoding(monkeypatch)
    assert open_corpus(f"stream:{file}").fingerprint == first
