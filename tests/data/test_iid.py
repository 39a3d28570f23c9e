from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, START
from lmzoo.data.open import open_corpus
from tests.data.refused import refused
from tests.tiny import quick

SPLITS = ("train", "valid", "test")


@quick
@given(st.integers(2, 9), st.integers(2, 6), st.tuples(*[st.integers(1, 5)] * 3))
def test_sizes_are_those_asked_for(symbols, length, sizes):
    fields = dict(zip(SPLITS, sizes, strict=True))
    corpus = open_corpus({"name": "iid", "symbols": symbols, "length": length, **fields})
    assert (corpus.task.vocab, corpus.task.length) == (4 + symbols, length)
    assert corpus.floor.token == corpus.floor.sentence == log(symbols)
    for split, size in fields.items():
        part = getattr(corpus, split)
        assert part.tokens.shape == (size, length)
        assert part.scored == size * (length - 1)
        assert (part.tokens[:, 0] == START).all()
        assert (part.tokens[:, 1:] > END).all()


def test_every_symbol_is_as_likely_everywhere_whatever_went_before():
    tokens = open_corpus({"name": "iid", "symbols": 5}).train.tokens[:, 1:] - 4
    onehot = torch.nn.functional.one_hot(tokens, 5).double()
    n, p = len(tokens), 1 / 5
    alone = (onehot.sum(0) - n * p) / (n * p * (1 - p)) ** 0.5
    together = torch.einsum("ntv,nuw->tuvw", onehot, onehot)
    together = (together - n * p**2) / (n * p**2 * (1 - p**2)) ** 0.5
    pairs = ~torch.eye(tokens.shape[1], dtype=torch.bool)
    # 95 and some 8,500 near-normal deviates: the largest of so many stays below 5.5.
    assert alone.abs().max() < 5.5
    assert together[pairs].abs().max() < 5.5
    assert 0.8 < alone.std() < 1.2


def test_a_seed_names_one_corpus_of_three_streams():
    first, again, other = (open_corpus({"name": "iid", "seed": seed}) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert not torch.equal(first.train.tokens[:500], first.valid.tokens)
    assert not torch.equal(first.test.tokens[:500], first.valid.tokens)


@pytest.mark.parametrize(
    ("field", "value"),
    [("symbols", 1), ("length", 1), ("train", 0), ("valid", -1), ("test", 0), ("seed", -1)],
)
def test_wrong_options_are_refused(field, value):
    with refused(field, value):
        open_corpus({"name": "iid", field: value})
