"""`<unk>` in the training split: its share, and what stays as it is."""

import dataclasses
import math
from collections import Counter
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.contract import UNKNOWN
from lmzoo.data import unknown
from lmzoo.data.corpus import CORPORA, describe_unknown, open_corpus
from lmzoo.data.unknown import (
    UNK,
    replace_rare_words,
    replacement_constant,
)
from lmzoo.data.vocabulary import build_vocabulary
from lmzoo.functional.token_scores import scored_mask
from lmzoo.train.recipe import Recipe
from lmzoo.train.run_config import identity_config
from lmzoo.trainables.resolve import resolve
from tests.tiny import quick
from tests.toy_study import toy_study

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
    plain, corpus = open_text(zipf, train_unk=False), open_text(zipf)
    assert UNK not in words_of(plain, plain.train)
    assert_share_is_good_turing(words_of(plain, plain.train), words_of(corpus, corpus.train))
    # The estimate holds on the held-out words: the standard error of a share of 4,000 is 0.006.
    share = words_of(corpus, corpus.train).count(UNK) / 32_000
    for part in (corpus.valid, corpus.test):
        assert share == pytest.approx(words_of(corpus, part).count(UNK) / 4_000, abs=0.03)


@pytest.mark.parametrize(
    "fault",
    [
        lambda counts, wanted: 2 * replacement_constant(counts, wanted),
        lambda counts, wanted: replacement_constant(counts, 0.9 * wanted),
        lambda counts, wanted: 0.25,
    ],
)
def test_another_share_is_detected(zipf, monkeypatch, fault):
    plain = open_text(zipf, train_unk=False)
    monkeypatch.setattr(unknown, "replacement_constant", fault)
    faulty = open_text(zipf)
    with pytest.raises(AssertionError):
        assert_share_is_good_turing(words_of(plain, plain.train), words_of(faulty, faulty.train))


def test_the_share_of_the_real_words(real_data):
    spec = {"name": "multi30k_en", "max_words": 100}  # no caption is cut
    plain = open_corpus({**spec, "train_unk": False}, real_data)
    corpus = open_corpus(spec, real_data)
    assert_share_is_good_turing(words_of(plain, plain.train), words_of(corpus, corpus.train))
    as_published = open_corpus({**spec, "split": "seed"}, real_data)
    assert UNK not in words_of(as_published, as_published.train)


def test_validation_test_and_vocabulary_stay_and_the_draw_is_fixed(zipf):
    plain, corpus, again = open_text(zipf, train_unk=False), open_text(zipf), open_text(zipf)
    assert corpus.fingerprint == again.fingerprint != plain.fingerprint
    assert corpus.vocabulary == plain.vocabulary
    for part in ("valid", "test"):
        assert getattr(corpus, part).tokens.equal(getattr(plain, part).tokens)
    assert corpus.train.lengths.equal(plain.train.lengths)
    assert corpus.train.tokens.ne(plain.train.tokens).sum() == corpus.train.tokens.eq(3).sum() > 0


def test_the_loss_of_unknown_words_falls_and_so_does_the_total(zipf):
    nats = {}
    for train_unk in (False, True):
        corpus = open_text(zipf, train_unk=train_unk)
        model = zoo.build(zoo.config("ngram_count", order=1), corpus.task)
        model.fit_closed_form(corpus.train.tokens, corpus.train.lengths)
        tokens, lengths = corpus.test.tokens, corpus.test.lengths
        loss = -model.log_prob(tokens, lengths)
        is_unknown = tokens == UNKNOWN
        nats[train_unk] = (
            float(loss[is_unknown].mean()),
            float(loss[scored_mask(tokens, lengths)].mean()),
        )
        share = float(is_unknown.sum()) / corpus.test.num_scored
    assert nats[True][0] == pytest.approx(-math.log(share), abs=0.3)
    assert nats[False][0] > nats[True][0] + 3
    assert nats[False][1] > nats[True][1] + 0.1


@quick
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.floats(0.01, 0.95))
def test_the_constant_solves_its_equation(counts, fraction):
    words = {f"w{i}": count for i, count in enumerate(counts)}
    wanted = fraction * sum(counts)
    z = replacement_constant(words, wanted)
    assert sum(c * z / (z + c) for c in counts) == pytest.approx(wanted)


@quick
@given(st.lists(st.lists(st.sampled_from("abcdefghijklmnop"), max_size=9), max_size=12))
def test_at_most_half_of_the_words_are_expected_to_be_replaced(sentences):
    words = Counter(word for sentence in sentences for word in sentence)
    assume(words)
    replaced = replace_rare_words(sentences, build_vocabulary(sentences))
    assert [len(s) for s in replaced] == [len(s) for s in sentences]
    if 1 not in words.values():
        assert replaced is sentences


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


def test_words_that_are_unknown_already_count(zipf):
    plain, corpus = open_text(zipf, min_count=2, train_unk=False), open_text(zipf, min_count=2)
    assert UNK in words_of(plain, plain.train)
    assert corpus.fingerprint == plain.fingerprint


def test_runs_on_changed_data_are_other_runs_and_other_points(zipf):
    study = toy_study(zipf)
    points, runs = [], []
    for train_unk in (False, True):
        corpus = open_text(zipf, train_unk=train_unk)
        fields = CORPORA.dump(CORPORA.parse({"name": "text", "path": str(zipf)}))
        points.append({point.id for point in resolve(study, corpus, fields)})
        runs.append(identity_config(zoo.config("DLM46"), Recipe(), corpus, fields, 0)["run"])
    assert not points[0] & points[1]
    assert runs[0] != runs[1]


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
