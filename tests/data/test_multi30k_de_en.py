"""The translation pairs of Multi30k, line by line."""

import gzip

import pytest

from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data.multi30k import SHA256
from lmzoo.data.open import open_corpus
from tests.data.test_pairs import decode_pairs
from tests.user_errors import raises_user_error


@pytest.fixture
def folder(tmp_path):
    """Multi30k files with ten training pairs; one side of the second pair is blank."""
    english = [f"A man number {i}, in White." for i in range(10)]
    german = [f"Ein Mann Nummer {i}, in Weiß." for i in range(10)]
    english[1] = ""
    (tmp_path / "train.en").write_text("\n".join(english) + "\n")
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(("\n".join(german) + "\n").encode()))
    for part in ("val", "test_2016_flickr"):
        (tmp_path / f"{part}.en").write_text("a man sings.\n")
        (tmp_path / f"{part}.de").write_text("ein mann singt.\n")
    return tmp_path


def open_pairs(folder, **fields):
    return open_corpus({"name": "multi30k_de_en", **fields}, folder)


def test_captions_are_paired_with_their_translations(folder):
    corpus = open_pairs(folder)
    expected = [
        (f"ein mann nummer {i}, in weiß.", f"a man number {i}, in white.")
        for i in range(10)
        if i != 1
    ]
    assert decode_pairs(corpus, corpus.train) == expected
    assert corpus.valid.sources[0][0, :4].tolist()[2:] == [UNKNOWN, END]
    assert (corpus.task.length, corpus.task.source_length) == (20, 19)


def test_both_sides_are_cut_and_end_with_end(folder):
    corpus = open_pairs(folder, max_words=2, punctuation="split")
    assert decode_pairs(corpus, corpus.train)[0] == ("ein mann", "a man")
    assert corpus.train.sources[0][:, -1].eq(END).all()
    assert corpus.train.tokens[:, -1].eq(END).all()


def test_files_of_different_length_are_rejected(folder):
    (folder / "val.de").write_text("eins.\nzwei.\n")
    with raises_user_error("multi30k_de_en", "val.de has 2 lines", "val.en 1", "fetch both"):
        open_pairs(folder)
    (folder / "val.de").unlink()
    with raises_user_error("multi30k_de_en", "val.de", folder):
        open_pairs(folder)


def test_all_six_files_have_a_checksum():
    parts = ("train", "val", "test_2016_flickr")
    assert set(SHA256) == {f"{part}.{language}" for part in parts for language in ("de", "en")}


def test_the_real_pairs(real_data):
    corpus = open_pairs(real_data)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [
        29_000,
        1_014,
        1_000,
    ]
    assert (len(corpus.source_vocabulary), len(corpus.vocabulary)) == (24_333, 14_450)
    assert decode_pairs(corpus, corpus.train)[1] == (
        "mehrere männer mit schutzhelmen bedienen ein antriebsradsystem.",
        "several men in hard hats are operating a giant pulley system.",
    )
    for part in (corpus.train, corpus.valid, corpus.test):
        source, n = part.sources
        assert source.gather(1, n[:, None] - 1).eq(END).all()
        assert not source.eq(START).any()
        assert 2 <= n.min() <= n.max() == 19
