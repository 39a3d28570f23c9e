"""Pairs: two sides of one line, each with a vocabulary of its own, cut and gathered together."""

import gzip
import hashlib

import pytest
import torch

from lmzoo.contract import END, PAD, START
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.open import open_corpus
from tests.data.refused import refused


@pytest.fixture
def path(tmp_path):
    """Ten pairs, the eighth's source longer than the rest; a blank line is dropped."""
    lines = [f"eins wort{i}\tone word{i} here" for i in range(10)]
    lines[7] = "a b c d e f\tlong"
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n\n")
    return path


def told(corpus: Corpus, part: Sequences) -> list[tuple[str, str]]:
    """Both sides as text."""
    source = [corpus.source_vocabulary.decode(row) for row in part.given[0].tolist()]
    target = [corpus.vocabulary.decode(row) for row in part.tokens.tolist()]
    return list(zip(source, target, strict=True))


def test_each_side_has_its_own_words_and_no_start_stands_before_a_source(path):
    corpus = open_corpus(f"pairs:{path}")
    assert told(corpus, corpus.train)[3] == ("eins wort3", "one word3 here")
    assert list(map(len, (corpus.train, corpus.valid, corpus.test))) == [8, 1, 1]
    assert "eins" in corpus.source_vocabulary.tokens
    assert "eins" not in corpus.vocabulary.tokens
    source, n = corpus.train.given
    assert not source.eq(START).any()
    assert n.tolist() == [3] * 7 + [7]
    assert source[0, :4].tolist()[2:] == [END, PAD]
    assert corpus.train.tokens[:, 0].eq(START).all()
    task = corpus.task
    assert (task.length, task.source_length) == (64, 63)
    assert task.source_vocab == len(corpus.source_vocabulary) == 4 + 1 + 7 + 6


def test_both_sides_are_cut(path):
    corpus = open_corpus({"name": "pairs", "path": str(path), "length": 4})
    assert told(corpus, corpus.train)[7] == ("a b", "long")
    assert told(corpus, corpus.train)[0] == ("eins wort0", "one word0")
    assert corpus.train.given[1].max() == 3


def test_a_packed_file_is_the_same_corpus(path, tmp_path):
    packed = tmp_path / "pairs.tsv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plain, zipped = open_corpus(f"pairs:{path}"), open_corpus(f"pairs:{packed}")
    assert plain.fingerprint == zipped.fingerprint


@pytest.mark.parametrize("line", ["no tab", "two\ttabs\there", "\tno source", "no target\t "])
def test_a_line_that_is_no_pair_is_named(path, line):
    path.write_text("a\tb\n" + line + "\n")
    with refused(path.name, "line 2", repr(line), "one tab"):
        open_corpus(f"pairs:{path}")


def test_no_file_and_too_short_a_file_are_refused(path):
    with refused("pairs:PATH"):
        open_corpus("pairs")
    path.write_text("a\tb\n" * 3)
    with refused("pairs", "valid split is empty", "3 + 0 + 0"):
        open_corpus(f"pairs:{path}")


def test_a_batch_takes_its_sources_along_and_trims_them(path):
    corpus = open_corpus(f"pairs:{path}")
    rows = torch.tensor([5, 2])
    some = gather_batch(corpus.train, rows)
    source, n = some.given
    assert source.equal(corpus.train.given[0][rows, :3])
    assert n.equal(corpus.train.given[1][rows])
    assert told(corpus, some) == [told(corpus, corpus.train)[i] for i in rows]
    whole = gather_batch(corpus.train, rows, trim=False)
    assert whole.given[0].shape == (2, 63)
    assert gather_batch(Sequences(corpus.train.tokens, corpus.train.lengths), rows).given == ()


def test_sources_are_part_of_a_corpus_and_their_absence_is_what_it_was(path):
    corpus = open_corpus(f"pairs:{path}")
    path.write_text(path.read_text().replace("eins wort3", "zwei wort3"))
    assert open_corpus(f"pairs:{path}").fingerprint != corpus.fingerprint
    alone = open_corpus({"name": "iid", "train": 4, "valid": 2, "test": 2})
    parts = (alone.train, alone.valid, alone.test)
    columns = [column for part in parts for column in (part.tokens, part.lengths)]
    text = "\n".join(alone.vocabulary.tokens).encode()
    bits = b"".join(column.numpy().tobytes() for column in columns)
    assert alone.fingerprint == hashlib.sha256(text + bits).hexdigest()[:16]
    assert (alone.task.source_vocab, alone.task.source_length) == (0, 0)
