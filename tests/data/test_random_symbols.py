"""The corpora `iid`, `copy` and `reverse`."""

from math import log

import pytest
import torch
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


def test_symbols_are_uniform_and_independent_of_position_and_context():
    tokens = open_corpus({"name": "iid", "symbols": 5}).train.tokens[:, 1:] - 4
    onehot = torch.nn.functional.one_hot(tokens, 5).double()
    n, p = len(tokens), 1 / 5
    single = (onehot.sum(0) - n * p) / (n * p * (1 - p)) ** 0.5
    joint = torch.einsum("ntv,nuw->tuvw", onehot, onehot)
    joint = (joint - n * p**2) / (n * p**2 * (1 - p**2)) ** 0.5
    pairs = ~torch.eye(tokens.shape[1], dtype=torch.bool)
    # 95 and about 8,500 nearly normal deviates: the largest is below 5.5.
    assert single.abs().max() < 5.5
    assert joint[pairs].abs().max() < 5.5
    assert 0.8 < single.std() < 1.2


def test_the_seed_determines_the_corpus_and_splits_differ():
    first, same, other = (open_corpus({"name": "iid", "seed": seed}) for seed in (3, 3, 4))
    assert first.fingerprint == same.fingerprint != other.fingerprint
    assert not torch.equal(first.train.tokens[:500], first.valid.tokens)
    assert not torch.equal(first.test.tokens[:500], first.valid.tokens)


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
