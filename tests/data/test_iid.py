from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, START
from lmzoo.data.open import open_corpus
from tests.tiny import quick
from tests.user_errors import raises_user_error

SPLITS = ("train", "valid", "test")


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


@pytest.mark.parametrize(
    ("field", "value"),
    [("symbols", 1), ("length", 1), ("train", 0), ("valid", -1), ("test", 0), ("seed", -1)],
)
def test_invalid_options_are_rejected(field, value):
    with raises_user_error(field, value):
        open_corpus({"name": "iid", field: value})
