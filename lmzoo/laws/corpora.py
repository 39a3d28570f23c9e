"""Laws of a corpus: functions that take a source of a corpus and raise AssertionError."""

import math
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from lmzoo.contract import PAD, START
from lmzoo.data.corpus import Corpus, CorpusSource, Sequences
from lmzoo.laws.tiny import laws_of


def _splits(corpus: Corpus) -> Iterator[tuple[str, Sequences]]:
    for name in ("train", "valid", "test"):
        yield name, getattr(corpus, name)


def law_loading_is_deterministic(source: CorpusSource):
    """Two loads give the same data."""
    first = source.load().fingerprint
    second = source.load().fingerprint
    assert first == second, f"two loads have the fingerprints {first} and {second}"


def law_every_split_has_sequences(source: CorpusSource):
    """The training, validation and test splits have sequences with a scored token each."""
    for name, part in _splits(source.load()):
        assert len(part), f"{name} has no sequences"
        shortest = part.lengths.min()
        assert shortest >= 2, f"{name} has a sequence of length {shortest}"


def law_splits_have_one_length(source: CorpusSource):
    """All splits are padded to one length T, and no sequence is longer."""
    corpus = source.load()
    length = corpus.task.length
    for name, part in _splits(corpus):
        rows = len(part)
        shape = part.tokens.shape
        assert shape == (rows, length), f"{name}: tokens are {shape}"
        shape = part.lengths.shape
        assert shape == (rows,), f"{name}: lengths are {shape}"
        longest = part.lengths.max()
        assert longest <= length, f"{name}: a length is {longest} > {length}"


def law_tokens_are_in_the_vocabulary(source: CorpusSource):
    """Every token id is in the vocabulary; `<start>` comes first, `<pad>` after the end only."""
    corpus = source.load()
    task = corpus.task
    for name, part in _splits(corpus):
        tokens = part.tokens
        _assert_range(name, tokens, task.vocab)
        assert (tokens[:, 0] == START).all(), f"{name}: a sequence does not begin with <start>"
        padding = torch.arange(task.length) >= part.lengths[:, None]
        assert (tokens[padding] == PAD).all(), f"{name}: padding is not <pad>"
        assert (tokens[~padding] != PAD).all(), f"{name}: a sequence contains <pad>"
        if part.sources:
            _assert_range(f"sources of {name}", part.sources[0], task.source_vocab)


def law_the_entropy_is_possible(source: CorpusSource):
    """A stated entropy is between 0 and log V."""
    corpus = source.load()
    if corpus.floor is not None:
        limit = math.log(corpus.task.vocab)
        for value in (corpus.floor.token, corpus.floor.sentence):
            assert 0 <= value <= limit, f"the entropy {value:.3f} is not between 0 and {limit:.3f}"


def _assert_range(name: str, tokens: Tensor, vocab: int):
    low = int(tokens.min())
    high = int(tokens.max())
    found = f"{name}: tokens are {low} to {high}, the vocabulary is {vocab}"
    assert 0 <= low <= high < vocab, found


CORPUS_LAWS = tuple(laws_of(sys.modules[__name__]))
