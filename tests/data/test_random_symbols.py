"""The corpora `iid`, `copy` and `reverse`."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, START
from lmzoo.data.corpus import open_corpus
from tests.tiny import quick

SPLITS = ("train", "valid", "test")
NAMES = ["copy", "reverse"]


@quick
@given(st.integers(2, 9), st.integers(2, 6), st.tuples(*[st.integers(1, 5)] * 3))
def test_sizes_and_floors_follow_the_config(symbols, length, sizes):
    fields = dict(zip(SPLITS, sizes, strict=True))
    corpus = open_corpus({"name": "iid", "symbols": symbols, "length": length, **fields})
    assert (corpus.task.vocab, corpus.task.length) == (4 + symbols, length)
    assert corpus.floor.token == corpus.floor.sentence == log(symbols)
    for split, size in fields.items():
        part = getattr(corpus, split)
        assert part.tokens.shape == (size, length)
        assert part.num_scored == size * (length - 1)
        assert (part.tokens[:, 0] == START).all()
        assert (part.tokens[:, 1:] > END).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_target_is_the_source_or_its_reverse(name: str) -> None:
    corpus = open_corpus({"name": name, "length": 7, "train": 50})
    assert list(map(len, (corpus.train, corpus.valid, corpus.test))) == [50, 500, 1000]
    for part in (corpus.train, corpus.valid, corpus.test):
        source, n = part.sources
        target = part.tokens[:, 1:]
        assert target.equal(source if name == "copy" else source.flip(1))
        assert part.tokens[:, 0].eq(START).all()
        assert n.eq(7).all()
        assert part.lengths.eq(8).all()
        assert 4 <= source.min() <= source.max() < 24
    assert (corpus.floor.token, corpus.floor.sentence) == (0, 0)
    task = corpus.task
    assert (task.vocab, task.length, task.source_vocab, task.source_length) == (24, 8, 24, 7)


def test_copy_and_reverse_have_the_same_sources() -> None:
    copy, reverse = (open_corpus({"name": name, "train": 30}) for name in NAMES)
    assert copy.train.sources[0].equal(reverse.train.sources[0])
    assert copy.fingerprint != reverse.fingerprint
