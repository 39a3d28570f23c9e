"""`<unk>` in the training split: its share, and what stays as it is."""

import dataclasses
import math
from collections import Counter
from itertools import accumulate
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
from tests.data.corpus_parts import decoded
from tests.tiny import quick

STANDARD_DEVIATIONS = 4.5
TEST_WORDS = 4_000
TRAIN_WORDS = 32_000


@pytest.fixture(scope="module")
def zipf(tmp_path_factory):
    """A text whose words have the probabilities of Zipf's law, 1/rank."""
    ranks = range(1, 8001)
    names = [f"w{rank}" for rank in ranks]
    # Sums, because `choices` would add up its weights for every line.
    sums = list(accumulate(1 / rank for rank in ranks))
    random = Random(5)
    lines = []
    for _ in range(4000):
        words = random.choices(names, cum_weights=sums, k=10)
        lines.append(" ".join(words) + "\n")
    path = tmp_path_factory.mktemp("zipf") / "zipf.txt"
    path.write_text("".join(lines))
    return path


def open_text(path, **fields):
    return open_corpus({"name": "text", "path": str(path)} | fields)


@pytest.fixture(scope="module")
def plain(zipf):
    """Return the corpus without unknown words in training."""
    return open_text(zipf, train_unk=False)


@pytest.fixture(scope="module")
def corpus(zipf):
    return open_text(zipf)


def words_of(corpus, split: str) -> list[str]:
    part = getattr(corpus, split)
    return " ".join(decoded(corpus, part)).split()


class Replacement:
    """Word i of a text becomes <unk> with the chance z / (z + count), whose sum is n_1."""

    def __init__(self, words: list[str], replaced: list[str]):
        self.words = words
        self.replaced = replaced
        counts = Counter(words)
        self.once = float(list(counts.values()).count(1))
        z = replacement_constant(counts, self.once)
        # How often the word at each place occurs.
        self.counts = [counts[word] for word in words]
        self.chances = [z / (z + count) for count in self.counts]

    def with_counts(self, low: int, high: int) -> list[int]:
        """Return the places of words that occur so often."""
        return [i for i, count in enumerate(self.counts) if low <= count <= high]

    def assert_as_expected(self, places: list[int]):
        """Assert that as many of these words are replaced; the variance is Σ_i p_i (1 − p_i)."""
        expected = variance = 0.0
        actual = 0
        for i in places:
            chance = self.chances[i]
            expected += chance
            variance += chance * (1 - chance)
            actual += self.replaced[i] == UNK
        deviation = math.sqrt(variance)
        assert abs(actual - expected) < STANDARD_DEVIATIONS * deviation


@pytest.fixture(scope="module")
def replacement(plain, corpus) -> Replacement:
    return Replacement(words_of(plain, "train"), words_of(corpus, "train"))


def test_the_chances_add_up_to_the_words_that_occur_once(replacement):
    """The estimate of Good and Turing."""
    total = math.fsum(replacement.chances)
    assert total == pytest.approx(replacement.once)


# All words, and those of four frequencies.
COUNTS = [(1, TRAIN_WORDS), (1, 1), (2, 5), (6, 40), (41, TRAIN_WORDS)]


@pytest.mark.parametrize(("low", "high"), COUNTS)
def test_words_of_every_frequency_are_replaced_as_often_as_their_chances_say(
    replacement, low, high
):
    places = replacement.with_counts(low, high)
    replacement.assert_as_expected(places)


def test_a_word_stays_or_becomes_unknown(replacement):
    assert UNK not in replacement.words
    for old, new in zip(replacement.words, replacement.replaced, strict=True):
        assert new in (old, UNK)


def test_the_replaced_words_are_a_part_of_the_identity(zipf, plain, corpus):
    again = open_text(zipf)
    assert again.fingerprint == corpus.fingerprint
    assert corpus.fingerprint != plain.fingerprint
    assert corpus.vocabulary == plain.vocabulary


@pytest.mark.parametrize("split", ["valid", "test"])
def test_the_share_in_training_is_that_of_held_out_words(plain, corpus, split):
    share = words_of(corpus, "train").count(UNK) / TRAIN_WORDS
    held_out = words_of(corpus, split).count(UNK) / TEST_WORDS
    # The standard error of a share of 4,000 is 0.006.
    assert share == pytest.approx(held_out, abs=0.03)
    # Held-out words are not replaced.
    part = getattr(corpus, split)
    expected = getattr(plain, split)
    assert part.tokens.equal(expected.tokens)


@quick
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.floats(0.01, 0.95))
def test_the_constant_solves_its_equation(counts, fraction):
    words = {f"w{i}": count for i, count in enumerate(counts)}
    wanted = fraction * sum(counts)
    z = replacement_constant(words, wanted)
    found = sum(count * z / (z + count) for count in counts)
    assert found == pytest.approx(wanted)


COMPOSED = [(600, 200, 400, 600), (900, 0, 100, 500)]


@pytest.mark.parametrize(("rare", "unknown", "common", "expected"), COMPOSED)
def test_unknown_words_count_and_half_of_all_words_stay(rare, unknown, common, expected):
    # Each rare word occurs once.
    words = [f"w{i}" for i in range(rare)]
    words += [UNK] * unknown
    words += ["a"] * common
    vocabulary = build_vocabulary([words])
    (replaced,) = replace_rare_words([words], vocabulary)
    ids = torch.tensor(vocabulary.encode(words))
    held_out = torch.tensor([UNKNOWN])
    replaced_ids = replace_rare_ids(ids, held_out, held_out)
    # The standard deviation of both counts is at most 18.
    count = pytest.approx(expected, abs=80)
    assert replaced.count(UNK) == count
    assert int(replaced_ids.eq(UNKNOWN).sum()) == count


@pytest.fixture
def known(tmp_path):
    """A text without an unknown word; its last line, which is for training, has rare ones."""
    path = tmp_path / "known.txt"
    path.write_text("a man runs\n" * 30 + "rare words here\n")
    return path


@pytest.mark.parametrize("fields", [{}, {"unit": "char"}, {"min_count": 2}], ids=str)
def test_a_corpus_without_unknown_words_keeps_its_data(known, fields):
    plain = open_text(known, train_unk=False, **fields)
    corpus = open_text(known, **fields)
    assert corpus.fingerprint == plain.fingerprint


def test_only_a_corpus_that_replaces_nothing_says_so_in_its_config(known):
    parsed = CORPORA.parse({"name": "text", "path": str(known)})
    config = CORPORA.dump(parsed)
    parsed_off = CORPORA.parse(config | {"train_unk": False})
    off = CORPORA.dump(parsed_off)
    assert "train_unk" not in config
    assert off["train_unk"] is False
    assert CORPORA.parse(off).train_unk is False


def test_both_sides_of_pairs_are_replaced_on_their_own(zipf, tmp_path):
    """The targets have no unknown word."""
    path = tmp_path / "pairs.tsv"
    pairs = zipf.read_text().replace("\n", "\ta man sits\n")
    path.write_text(pairs)
    train = open_text(path, name="pairs").train
    off = open_text(path, name="pairs", train_unk=False).train
    source, _ = train.sources
    source_off, _ = off.sources
    assert source.eq(UNKNOWN).any()
    assert not train.tokens.eq(UNKNOWN).any()
    assert not source_off.eq(UNKNOWN).any()


def test_the_line_about_unk_says_its_share_in_training(corpus):
    line = describe_unknown(corpus)
    assert "of the training" in line


def test_the_line_about_unk_says_that_training_has_none(plain):
    line = describe_unknown(plain)
    assert "training has none: its probability is not learned" in line
    assert "no training token is rare" not in line


def test_there_is_no_line_about_unk_without_it(corpus, plain):
    # The training split of the plain corpus has no unknown word.
    known = dataclasses.replace(corpus, valid=plain.train, test=plain.train)
    assert describe_unknown(known) == ""


def test_the_line_about_unk_says_that_no_training_word_is_rare(tmp_path):
    path = tmp_path / "frequent.txt"
    path.write_text("a man runs\n" * 8 + "a dog runs\na cat runs\n")
    corpus = open_text(path)
    line = describe_unknown(corpus)
    assert "no training token is rare, and training has none" in line
