"""Corpora of pairs: vocabularies, cuts and batches of sources and targets."""

import hashlib

import pytest

from lmzoo.contract import END, PAD, START
from lmzoo.data.corpus import Corpus, Sequences, open_corpus
from tests.user_errors import raises_user_error


@pytest.fixture
def path(tmp_path):
    """A file of ten pairs, one with a longer source, and a blank line; 4 validates, 2 tests."""
    lines = [f"eins wort{i}\tone word{i} here" for i in range(10)]
    lines[7] = "a b c d e f\tlong"
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n\n")
    return path


def decode_pairs(corpus: Corpus, part: Sequences) -> list[tuple[str, str]]:
    """Return the text of every source and target."""
    source = [corpus.source_vocabulary.decode(row) for row in part.sources[0].tolist()]
    target = [corpus.vocabulary.decode(row) for row in part.tokens.tolist()]
    return list(zip(source, target, strict=True))


def test_each_side_has_its_own_vocabulary_and_is_cut_and_sources_have_no_start(path):
    corpus = open_corpus({"name": "pairs", "path": str(path), "train_unk": False})
    assert decode_pairs(corpus, corpus.train)[2] == ("eins wort3", "one word3 here")
    assert list(map(len, (corpus.train, corpus.valid, corpus.test))) == [8, 1, 1]
    assert "eins" in corpus.source_vocabulary.tokens
    assert "eins" not in corpus.vocabulary.tokens
    source, n = corpus.train.sources
    assert not source.eq(START).any()
    assert n.tolist() == [3] * 5 + [7, 3, 3]
    assert source[0, :4].tolist()[2:] == [END, PAD]
    assert corpus.train.tokens[:, 0].eq(START).all()
    task = corpus.task
    assert (task.length, task.source_length) == (64, 63)
    assert task.source_vocab == len(corpus.source_vocabulary) == 4 + 1 + 7 + 6
    assert (corpus.facts.longest, corpus.facts.unknown) == (6, 0.333333)
    cut = open_corpus({"name": "pairs", "path": str(path), "train_unk": False, "length": 4})
    assert decode_pairs(cut, cut.train)[5] == ("a b", "long")
    assert decode_pairs(cut, cut.train)[0] == ("eins wort0", "one word0")
    assert cut.train.sources[1].max() == 3


@pytest.mark.parametrize("line", ["no tab", "two\ttabs\there", "\tno source", "no target\t "])
def test_a_line_that_is_not_a_pair_is_rejected(path, line):
    path.write_text("a\tb\n" + line + "\n")
    with raises_user_error(path.name, "line 2", repr(line), "one tab"):
        open_corpus(f"pairs:{path}")


def test_the_fingerprint_covers_sources_and_is_pinned_without_them(path):
    corpus = open_corpus(f"pairs:{path}")
    path.write_text(path.read_text().replace("eins wort3", "zwei wort3"))
    assert open_corpus(f"pairs:{path}").fingerprint != corpus.fingerprint
    plain_corpus = open_corpus({"name": "iid", "train": 4, "valid": 2, "test": 2})
    parts = (plain_corpus.train, plain_corpus.valid, plain_corpus.test)
    columns = [column for part in parts for column in (part.tokens, part.lengths)]
    text = "\n".join(plain_corpus.vocabulary.tokens).encode()
    bits = b"".join(column.numpy().tobytes() for column in columns)
    assert plain_corpus.fingerprint == hashlib.sha256(text + bits).hexdigest()[:16]
    assert (plain_corpus.task.source_vocab, plain_corpus.task.source_length) == (0, 0)
