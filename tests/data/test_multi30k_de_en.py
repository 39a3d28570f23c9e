"""The translation pairs of Multi30k: line by line, from the user's folder or the real files."""

import gzip

import pytest

from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data.multi30k import SHA256
from lmzoo.data.open import open_corpus
from tests.data.refused import refused
from tests.data.test_pairs import told


@pytest.fixture
def folder(tmp_path):
    """Ten pairs to train on; in the second, one side is blank."""
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


def test_a_caption_stands_beside_its_own_translation(folder):
    corpus = open_pairs(folder)
    expected = [
        (f"ein mann nummer {i}, in weiß.", f"a man number {i}, in white.")
        for i in range(10)
        if i != 1
    ]
    assert told(corpus, corpus.train) == expected
    assert corpus.valid.given[0][0, :4].tolist()[2:] == [UNKNOWN, END]
    assert (corpus.task.length, corpus.task.source_length) == (20, 19)


def test_both_sides_are_cut_and_end(folder):
    corpus = open_pairs(folder, max_words=2, punctuation="split")
    assert told(corpus, corpus.train)[0] == ("ein mann", "a man")
    assert corpus.train.given[0][:, -1].eq(END).all()
    assert corpus.train.tokens[:, -1].eq(END).all()


def test_files_that_do_not_belong_together_are_refused(folder):
    (folder / "val.de").write_text("eins.\nzwei.\n")
    with refused("multi30k_de_en", "val.de has 2 lines", "val.en 1", "fetch both"):
        open_pairs(folder)
    (folder / "val.de").unlink()
    with refused("multi30k_de_en", "val.de", folder):
        open_pairs(folder)


def test_all_six_files_are_held_to_a_checksum():
    parts = ("train", "val", "test_2016_flickr")
    assert set(SHA256) == {f"{part}.{language}" for part in parts for language in ("de", "en")}


def test_the_real_pairs(real):
    corpus = open_pairs(real)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [
        29_000,
        1_014,
        1_000,
    ]
    assert (len(corpus.source_vocabulary), len(corpus.vocabulary)) == (24_333, 14_450)
    assert told(corpus, corpus.train)[1] == (
        "mehrere männer mit schutzhelmen bedienen ein antriebsradsystem.",
        "several men in hard hats are operating a giant pulley system.",
    )
    for part in (corpus.train, corpus.valid, corpus.test):
        source, n = part.given
        assert source.gather(1, n[:, None] - 1).eq(END).all()
        assert not source.eq(START).any()
        assert 2 <= n.min() <= n.max() == 19
