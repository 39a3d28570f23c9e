"""Order, trimming and padding of batches; tokens are stored as small as the vocabulary allows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data.batches import POOL, epoch_batches, gather_batch, iter_batches
from lmzoo.data.corpus import HASHED_ROWS, Corpus, Sequences, token_dtype
from lmzoo.data.sequences import CHUNK, encode
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.kernels.device import CPU
from tests.tiny import quick


def random_pairs() -> Sequences:
    generator = torch.Generator().manual_seed(0)
    lengths, source_lengths = (
        torch.randint(1, high, (23,), generator=generator) for high in (11, 7)
    )
    lengths[3], lengths[4] = 10, 1
    tokens, source = (torch.randint(4, 9, (23, n), generator=generator) for n in (10, 6))
    return Sequences(tokens, lengths, (source, source_lengths))


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("with_sources", [True, False])
def test_batches_are_the_rows_of_their_order(trim, with_sources):
    data = random_pairs()
    if not with_sources:
        data = Sequences(data.tokens, data.lengths)
    order = epoch_batches(data.lengths, 5, seed=0, epoch=0)
    for rows, batch in zip(order, iter_batches(data, order, CPU, trim=trim), strict=True):
        assert batch.lengths.equal(data.lengths[rows])
        width = max(2, int(batch.lengths.max())) if trim else 10
        assert batch.tokens.equal(data.tokens[rows, :width])
        if with_sources:
            width = int(data.sources[1][rows].max()) if trim else 6
            assert batch.sources[0].equal(data.sources[0][rows, :width])
            assert batch.sources[1].equal(data.sources[1][rows])
        again = gather_batch(data, rows, trim=trim)
        assert again.tokens.equal(batch.tokens)
        assert len(again.sources) == len(batch.sources) == 2 * with_sources
        assert all(map(torch.equal, again.sources, batch.sources))


def test_few_widths_are_the_whole_its_half_and_its_quarter():
    data = random_pairs()
    order = [torch.tensor([i]) for i in range(len(data))]
    widths = set()
    for i, batch in enumerate(iter_batches(data, order, CPU, few_widths=True)):
        width, source_width = batch.tokens.shape[1], batch.sources[0].shape[1]
        assert width == min(w for w in (3, 5, 10) if w >= max(2, int(data.lengths[i])))
        assert source_width == min(w for w in (2, 3, 6) if w >= int(data.sources[1][i]))
        assert torch.equal(batch.tokens[0], data.tokens[i, :width])
        widths.add(width)
    assert widths == {3, 5, 10}
    assert gather_batch(data, torch.tensor([4])).ids.shape == (1, 2)


@quick
@given(
    st.lists(st.integers(1, 20), max_size=200),
    st.integers(1, 7),
    st.integers(0, 2**31),
    st.integers(0, 99),
)
def test_an_epoch_contains_every_row_once(lengths, batch, seed, epoch):
    before = torch.random.get_rng_state()
    batches = epoch_batches(torch.tensor(lengths, dtype=torch.int64), batch, seed=seed, epoch=epoch)
    assert torch.equal(torch.random.get_rng_state(), before)
    rows = torch.cat(batches).tolist() if batches else []
    assert sorted(rows) == list(range(len(lengths)))
    assert all(len(rows) <= batch for rows in batches)
    # Complete pools consist of complete batches, so at most one batch is smaller.
    assert sum(len(rows) < batch for rows in batches) <= 1


def test_the_order_depends_on_seed_and_epoch_only():
    lengths = torch.randint(2, 20, (500,), generator=torch.Generator().manual_seed(0))

    def order(seed: int, epoch: int) -> list[int]:
        return torch.cat(epoch_batches(lengths, 10, seed=seed, epoch=epoch)).tolist()

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_long_batches_are_at_the_same_steps_for_every_seed():
    lengths = torch.randint(2, 60, (20 * POOL,), generator=torch.Generator().manual_seed(0))

    def longest(seed: int, epoch: int) -> torch.Tensor:
        batches = epoch_batches(lengths, 10, seed=seed, epoch=epoch)
        return torch.tensor([int(lengths[rows].max()) for rows in batches])

    longest_by_seed = torch.stack([longest(seed, 3) for seed in range(8)])
    span = longest_by_seed.max(0).values - longest_by_seed.min(0).values
    # The range is 58; with an independent order for each seed the mean is 47.
    assert float(span.float().mean()) < 6
    assert longest_by_seed.unique(dim=0).shape == longest_by_seed.shape  # similar, but not equal
    assert float((longest(0, 3) - longest(0, 4)).abs().float().mean()) > 12


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
        assert batch.ids.dtype == torch.int64
        assert batch.tokens.equal(data.tokens[rows])


def test_fingerprint_and_encoding_do_not_depend_on_their_chunks(monkeypatch):
    sentences = [["w1", "w2"][: i % 3] for i in range(50)]
    words = corpus(9).vocabulary
    whole, fingerprint = encode(sentences, words, length=4, end=True)[0], corpus(9).fingerprint
    monkeypatch.setattr("lmzoo.data.sequences.CHUNK", 7)
    monkeypatch.setattr("lmzoo.data.corpus.HASHED_ROWS", 3)
    parts = encode(sentences, words, length=4, end=True)[0]
    assert parts.ids.equal(whole.ids)
    assert parts.lengths.equal(whole.lengths)
    assert corpus(9).fingerprint == fingerprint
    assert min(CHUNK, HASHED_ROWS) > 50
