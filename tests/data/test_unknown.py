"""`<unk>` in the training split: its share, and what stays as it is."""

import dataclasses
import math
from collections import Counter
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import UNKNOWN
from lmzoo.data.corpus import CORPORA, describe_unknown, open_corpus
from lmzoo.data.vocabulary import (
    UNK,
    build_vocabulary,
    replace_rare_ids,
    replace_rare_words,
    replacement_constant,
)
from tests.tiny import quick

STANDARD_DEVIATIONS = 4.5


@pytest.fixture(scope="module")
def zipf(tmp_path_factory):
    """A text whose words have the probabilities of Zipf's law, 1/rank."""
    random, ranks = Random(5), range(1, 8001)
    words = random.choices([f"w{r}" for r in ranks], [1 / r for r in ranks], k=40_000)
    path = tmp_path_factory.mktemp("zipf") / "zipf.txt"
    path.write_text("".join(f"{' '.join(words[i : i + 10])}\n" for i in range(0, len(words), 10)))
    return path


def open_text(path, **fields):
    return open_corpus({"name": "text", "path": str(path), **fields})


def assert_share_is_good_turing(words: list[str], replaced: list[str]):
    """Check Σ_i [word i is replaced] against n_1 = Σ_i p_i; its variance is Σ_i p_i (1 − p_i)."""
    counts = Counter(words)
    n_1 = sum(c == 1 for c in counts.values())
    z = replacement_constant(counts, float(n_1))
    chances = [z / (z + counts[word]) for word in words]
    assert math.fsum(chances) == pytest.approx(n_1)
    deviation = math.sqrt(math.fsum(p * (1 - p) for p in chances))
    assert abs(replaced.count(UNK) - n_1) < STANDARD_DEVIATIONS * deviation
    # Words of every frequency are replaced as often as the formula says.
    for low, high in ((1, 1), (2, 5), (6, 40), (41, len(words))):
        some = [i for i, word in enumerate(words) if low <= counts[word] <= high]
        expected = math.fsum(chances[i] for i in some)
        spread = math.sqrt(math.fsum(chances[i] * (1 - chances[i]) for i in some))
        actual = sum(replaced[i] == UNK for i in some)
        assert abs(actual - expected) < STANDARD_DEVIATIONS * spread, (low, high)
    assert all(new in (old, UNK) for old, new in zip(words, replaced, strict=True))


def words_of(corpus, part) -> list[str]:
    return " ".join(corpus.vocabulary.decode(row) for row in part.tokens.tolist()).split()


def test_the_share_is_that_of_good_and_turing_on_a_zipf_text(zipf):
    plain, corpus, again = open_text(zipf, train_unk=False), open_text(zipf), open_text(zipf)
    assert UNK not in words_of(plain, plain.train)
    assert_share_is_good_turing(words_of(plain, plain.train), words_of(corpus, corpus.train))
    assert corpus.fingerprint == again.fingerprint != plain.fingerprint
    assert corpus.vocabulary == plain.vocabulary
    # The estimate holds on the held-out words: the standard error of a share of 4,000 is 0.006.
    share = words_of(corpus, corpus.train).count(UNK) / 32_000
    for part in ("valid", "test"):
        held_out = getattr(corpus, part)
        assert share == pytest.approx(words_of(corpus, held_out).count(UNK) / 4_000, abs=0.03)
        assert held_out.tokens.equal(getattr(plain, part).tokens)


@quick
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.floats(0.01, 0.95))
def test_the_constant_solves_its_equation(counts, fraction):
    words = {f"w{i}": count for i, count in enumerate(counts)}
    wanted = fraction * sum(counts)
    z = replacement_constant(words, wanted)
    assert sum(c * z / (z + c) for c in counts) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("rare", "unknown", "common", "expected"), [(600, 200, 400, 600), (900, 0, 100, 500)]
)
def test_unknown_words_count_and_half_of_all_words_stay(rare, unknown, common, expected):
    words = [*(f"w{i}" for i in range(rare)), *[UNK] * unknown, *["a"] * common]
    vocabulary = build_vocabulary([words])
    (replaced,) = replace_rare_words([words], vocabulary)
    held_out = torch.tensor([UNKNOWN])
    ids = replace_rare_ids(torch.tensor(vocabulary.encode(words)), held_out, held_out)
    for count in (replaced.count(UNK), int((ids == UNKNOWN).sum())):
        assert count == pytest.approx(expected, abs=80)  # its standard deviation is at most 18


def test_a_corpus_without_unknown_words_keeps_its_data_and_its_identity(tmp_path):
    path = tmp_path / "known.txt"
    path.write_text("a man runs\n" * 30 + "rare words here\n")  # the last line is for training
    for fields in ({}, {"unit": "char"}, {"min_count": 2}):
        plain, corpus = open_text(path, train_unk=False, **fields), open_text(path, **fields)
        assert corpus.fingerprint == plain.fingerprint
    dumped = CORPORA.dump(CORPORA.parse({"name": "text", "path": str(path)}))
    assert "train_unk" not in dumped
    off = CORPORA.dump(CORPORA.parse({**dumped, "train_unk": False}))
    assert off["train_unk"] is False
    assert CORPORA.parse(off).train_unk is False


def test_both_sides_of_pairs_are_replaced_on_their_own(zipf, tmp_path):
    lines = zipf.read_text().splitlines()
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\ta man sits\n" for line in lines))
    corpus = open_corpus({"name": "pairs", "path": str(path)})
    assert corpus.train.sources[0].eq(UNKNOWN).any()
    assert not corpus.train.tokens.eq(UNKNOWN).any()  # no unknown word in the targets
    off = open_corpus({"name": "pairs", "path": str(path), "train_unk": False})
    assert not off.train.sources[0].eq(UNKNOWN).any()


def test_the_line_about_unk(zipf, tmp_path):
    corpus, plain = open_text(zipf), open_text(zipf, train_unk=False)
    assert "of the training" in describe_unknown(corpus)
    line = describe_unknown(plain)
    assert "training has none: its probability is not learned" in line
    assert "no training token is rare" not in line
    assert describe_unknown(dataclasses.replace(corpus, valid=plain.train, test=plain.train)) == ""
    path = tmp_path / "frequent.txt"
    path.write_text("a man runs\n" * 8 + "a dog runs\na cat runs\n")
    assert "no training token is rare, and training has none" in describe_unknown(open_text(path))
