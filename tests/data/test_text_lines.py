"""The ids of a long text are encoded once and mapped into memory; the corpus is the same."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from lmzoo.data import id_cache, user_files
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.data.unknown import replace_rare_words
from lmzoo.data.user_files import Words, pack_corpus, unpack_sequences
from lmzoo.data.vocabulary import build_vocabulary

FIELDS: list[dict[str, Any]] = [
    {},
    {"unit": "char", "lower": True, "length": 9},
    {"min_count": 2, "length": 300},
    {"train_unk": False},
    {"documents": True},
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text with rare words, blank lines, and lines that look like special tokens."""
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    draw = random.Random(0)
    words = ["".join(draw.choices("abcÉé漢", k=draw.randint(1, 4))) for _ in range(300)]
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(200)]
    lines[3::17] = ["", " \t", "<pad> <unk> x\r"] * 4
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def open_text(file: Path, **fields: Any) -> Corpus:
    return open_corpus({"name": "text", "path": str(file), **fields})


def folders(file: Path) -> list[Path]:
    return sorted((file.parent / "cache" / "tokens").glob("*"))


@pytest.mark.parametrize("fields", FIELDS)
def test_the_corpus_of_the_cache_is_the_corpus(file, monkeypatch, fields) -> None:
    expected = open_text(file, **fields)
    assert not folders(file)
    monkeypatch.setattr(user_files, "CACHED_FROM", 0)
    for _ in range(2):  # encoded, then from the cache
        found = open_text(file, **fields)
        assert found.fingerprint == expected.fingerprint
        assert found.vocabulary == expected.vocabulary
        assert (found.task, found.test_size) == (expected.task, expected.test_size)
        assert (found.unit, found.source) == (expected.unit, expected.source)
        assert found.train.ids.dtype == expected.train.ids.dtype
    assert len(folders(file)) == 1


def test_a_text_is_encoded_again_only_if_it_or_a_field_changes(file, monkeypatch) -> None:
    monkeypatch.setattr(user_files, "CACHED_FROM", 0)
    open_text(file)
    copy = file.with_name("copy.txt")
    copy.write_bytes(file.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(user_files, "assemble", lambda *_, **__: pytest.fail("encoded again"))
        assert "copy.txt" in open_text(copy).source
    open_text(file, length=5)
    copy.write_text(file.read_text() + "one more line\n")
    assert len(open_text(copy).train) + 1 >= len(open_text(file).train)
    assert len(folders(file)) == 3


def test_ids_are_mapped_and_no_worker_changes_those_of_another(file, monkeypatch) -> None:
    monkeypatch.setattr(user_files, "CACHED_FROM", 0)
    open_text(file)
    expected = (folders(file)[0] / "ids.bin").read_bytes()
    monkeypatch.setattr(id_cache, "_write", lambda *_: pytest.fail("written again"))
    corpus = open_text(file)
    mapped = corpus.train.ids.untyped_storage()
    assert mapped.data_ptr() == corpus.test.lengths.untyped_storage().data_ptr()
    corpus.train.ids.fill_(1)
    assert (folders(file)[0] / "ids.bin").read_bytes() == expected


@pytest.mark.parametrize("vocab", [200, 2000, 40_000])
def test_every_type_of_ids_is_packed_without_a_change(file, vocab: int) -> None:
    file.write_text("".join(f"{i} {i + 1} w\n" for i in range(10 * vocab // 8)))
    corpus = open_text(file, length=4)
    assert (
        corpus.train.ids.dtype is {200: torch.uint8, 2000: torch.int16, 40_000: torch.int32}[vocab]
    )
    flat, facts = pack_corpus(corpus)
    assert flat.dtype == corpus.train.ids.dtype
    parts = unpack_sequences(flat, facts["rows"])
    for part, found in zip((corpus.train, corpus.valid, corpus.test), parts, strict=True):
        assert found.ids.equal(part.ids)
        assert found.lengths.equal(part.lengths)


def test_the_words_of_lines_are_those_of_split() -> None:
    lines = ["a b  c", "d", "\te f"]
    words = Words(lines)
    assert [*words] == [line.split() for line in lines] == [words[0], words[1], words[2]]
    assert [*words[1:]] == [["d"], ["e", "f"]]
    assert len(words) == 3


def test_rare_words_are_replaced_alike_at_every_reading() -> None:
    draw = random.Random(0)
    sentences = [[f"w{int(draw.expovariate(0.02))}" for _ in range(8)] for _ in range(200)]
    replaced = replace_rare_words(sentences, build_vocabulary(sentences))
    assert [*replaced] == [*replaced] != sentences
    assert replaced[3:5] == [*replaced][3:5]
