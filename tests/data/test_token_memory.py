"""Tokens are stored as small as the vocabulary allows, and batches and fingerprints are int64."""

import pytest
import torch

from lmzoo.data.batches import epoch_batches, gather_batch, iter_batches
from lmzoo.data.corpus import HASHED_ROWS, Corpus, Sequences, token_dtype
from lmzoo.data.sequences import CHUNK, encode
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.kernels.device import CPU


def corpus(vocab: int) -> Corpus:
    tokens = torch.randint(4, vocab, (20, 6), generator=torch.Generator().manual_seed(vocab))
    tokens[0, 3] = vocab - 1
    part = Sequences(tokens, torch.full((20,), 6))
    words = Vocabulary((*SPECIALS, *(f"w{i}" for i in range(vocab - 4))))
    return Corpus("words", words, part, part, part, unit="word", source="")


@pytest.mark.parametrize(
    ("vocab", "dtype"),
    [(256, torch.uint8), (257, torch.int16), (2**15, torch.int16), (2**15 + 1, torch.int32)],
)
def test_every_id_fits_and_batches_are_int64(vocab, dtype):
    data = corpus(vocab).train
    assert data.ids.dtype == dtype == token_dtype(vocab)
    assert int(data.tokens[0, 3]) == vocab - 1
    order = epoch_batches(data.lengths, 7, seed=0, epoch=0)
    for rows, batch in zip(order, iter_batches(data, order, CPU), strict=True):
        assert batch.ids.dtype == gather_batch(data, rows).ids.dtype == torch.int64
        assert batch.tokens.equal(data.tokens[rows])


def test_fingerprint_and_encoding_do_not_depend_on_their_chunks(monkeypatch):
    sentences = [["w1", "w2"][: i % 3] for i in range(50)]
    words = corpus(9).vocabulary
    whole, fingerprint = encode(sentences, words, length=4, end=True), corpus(9).fingerprint
    monkeypatch.setattr("lmzoo.data.sequences.CHUNK", 7)
    monkeypatch.setattr("lmzoo.data.corpus.HASHED_ROWS", 3)
    parts = encode(sentences, words, length=4, end=True)
    assert parts.ids.equal(whole.ids)
    assert parts.lengths.equal(whole.lengths)
    assert corpus(9).fingerprint == fingerprint
    assert min(CHUNK, HASHED_ROWS) > 50
