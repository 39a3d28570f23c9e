"""The `copy` and `reverse` corpora: the source, and nothing else, determines the target."""

from math import log

import pytest

from lmzoo import zoo
from lmzoo.contract import PAD, START
from lmzoo.data.open import open_corpus
from lmzoo.train.evaluate import evaluate

NAMES = ["copy", "reverse"]


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


@pytest.mark.parametrize("name", NAMES)
def test_symbols_are_uniform_and_splits_differ(name: str) -> None:
    corpus = open_corpus({"name": name, "train": 4000})
    counts = corpus.train.tokens[:, 1:].flatten().bincount(minlength=24)[4:]
    expected = 4000 * 10 / 20
    assert ((counts - expected).abs() < 5 * expected**0.5).all()
    pairs = corpus.train.tokens[:, 1] * 24 + corpus.train.tokens[:, 2]
    assert len(pairs.unique()) == 400, "neighbours are not independent"
    assert not corpus.train.tokens[:500].equal(corpus.valid.tokens)
    other = open_corpus({"name": name, "train": 4000, "seed": 1})
    assert other.fingerprint != corpus.fingerprint
    assert open_corpus({"name": name, "train": 4000}).fingerprint == corpus.fingerprint


def test_copy_and_reverse_have_the_same_sources() -> None:
    copy, reverse = (open_corpus({"name": name, "train": 30}) for name in NAMES)
    assert copy.train.sources[0].equal(reverse.train.sources[0])
    assert copy.fingerprint != reverse.fingerprint


def test_a_model_without_the_source_cannot_beat_the_entropy_of_the_target() -> None:
    """A fitted unigram model scores H(y)/n = log 20 nats per token; the entropy floor is 0."""
    corpus = open_corpus({"name": "copy", "train": 2000})
    model = zoo.build(zoo.config("ngram_count", order=1, smoothing="add_alpha"), corpus.task)
    model.fit_closed_form(corpus.train.tokens, corpus.train.lengths)
    assert abs(evaluate(model, corpus.test).token - log(20)) < 0.01
    assert corpus.floor.token == 0
    assert PAD not in corpus.test.tokens
