"""Tiny Shakespeare by character: both splits, and the real file where it is present."""

import gzip
import hashlib

import pytest

from lmzoo.data.corpus import open_corpus
from lmzoo.data.published_texts import FILE
from tests.user_errors import raises_user_error

TEXT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 40


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "input.txt").write_text(TEXT)
    return tmp_path


def text_of(corpus, part):
    ids = part.tokens.flatten() if part.scored is None else part.tokens[part.scored]
    return "".join(corpus.vocabulary.tokens[i] for i in ids.tolist())


def test_the_standard_split_tests_other_characters(folder):
    corpus = open_corpus("shakespeare_char", folder)
    held_out = text_of(corpus, corpus.valid) + text_of(corpus, corpus.test)
    assert held_out == TEXT[int(0.9 * len(TEXT)) :]


def test_the_split_of_nanogpt_validates_on_the_last_tenth(folder):
    corpus = open_corpus({"name": "shakespeare_char", "split": "nanogpt"}, folder)
    assert text_of(corpus, corpus.valid) == TEXT[int(0.9 * len(TEXT)) :]
    assert corpus.test.tokens.equal(corpus.valid.tokens)


def test_a_missing_file_is_named(tmp_path):
    with raises_user_error("shakespeare_char", "input.txt", tmp_path):
        open_corpus("shakespeare_char", tmp_path)


def test_the_real_file(real_data):
    packed = (real_data / "tinyshakespeare" / "input.txt.gz").read_bytes()
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == FILE.sha256
    corpus = open_corpus({"name": "shakespeare_char", "split": "nanogpt"}, real_data)
    assert len(corpus.train.stream) == 1_003_854
    assert corpus.valid.num_scored == 111_540
    assert len(corpus.vocabulary) == 65 + 4
