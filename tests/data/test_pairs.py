"""Corpora of pairs: vocabularies, cuts and batches of sources and targets."""

import hashlib

import pytest

from lmzoo.contract import END, PAD, START
from lmzoo.data.corpus import Corpus, Sequences, open_corpus
from tests.data.corpus_parts import decoded, parts_of
from tests.user_errors import raises_user_error


@pytest.fixture
def path(tmp_path):
    """A file of ten pairs, one with a longer source, and a blank line; 4 validates, 2 tests."""
    lines = [f"eins wort{i}\tone word{i} here" for i in range(10)]
    lines[7] = "a b c d e f\tlong"
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n\n")
    return path


def load(path, **fields) -> Corpus:
    spec = {"name": "pairs", "path": str(path), "train_unk": False}
    return open_corpus(spec | fields)


@pytest.fixture
def corpus(path) -> Corpus:
    return load(path)


def decode_pairs(corpus: Corpus, part: Sequences) -> list[tuple[str, str]]:
    """Return the text of every source and target."""
    sources, _ = part.sources
    source_texts = map(corpus.source_vocabulary.decode, sources.tolist())
    target_texts = decoded(corpus, part)
    return list(zip(source_texts, target_texts, strict=True))


def test_pairs_are_dealt_8_1_1(corpus):
    pairs = decode_pairs(corpus, corpus.train)
    # A line before it is held out.
    assert pairs[2] == ("eins wort3", "one word3 here")
    assert corpus.facts.splits == (8, 1, 1)


def test_each_side_has_its_own_vocabulary(corpus):
    assert "eins" in corpus.source_vocabulary.tokens
    assert "eins" not in corpus.vocabulary.tokens


def test_sources_have_an_end_and_no_start(corpus):
    source, lengths = corpus.train.sources
    first_targets = corpus.train.tokens[:, 0]
    assert not source.eq(START).any()
    assert lengths.tolist() == [3, 3, 3, 3, 3, 7, 3, 3]
    assert source[0, 2:4].tolist() == [END, PAD]
    assert first_targets.eq(START).all()


def test_the_task_has_the_sizes_of_both_sides(corpus):
    assert corpus.task.length == 64
    assert corpus.task.source_length == 63
    # "eins", seven numbered words and the six letters of the longer source.
    specials_and_words = 4 + 1 + 7 + 6
    assert len(corpus.source_vocabulary) == specials_and_words
    assert corpus.task.source_vocab == specials_and_words


def test_facts_of_pairs_are_those_of_both_sides(corpus):
    assert corpus.facts.longest == 6
    assert corpus.facts.unknown == 0.333333


def test_both_sides_are_cut(path):
    cut = load(path, length=4)
    pairs = decode_pairs(cut, cut.train)
    _, source_lengths = cut.train.sources
    assert pairs[5] == ("a b", "long")
    assert pairs[0] == ("eins wort0", "one word0")
    # A source has no <start>.
    assert source_lengths.max() == 4 - 1


@pytest.mark.parametrize("line", ["no tab", "two\ttabs\there", "\tno source", "no target\t "])
def test_a_line_that_is_not_a_pair_is_rejected(path, line):
    path.write_text("a\tb\n" + line + "\n")
    with raises_user_error(path.name, "line 2", repr(line), "one tab"):
        open_corpus(f"pairs:{path}")


def test_the_fingerprint_covers_sources(path):
    before = load(path)
    changed = path.read_text().replace("eins wort3", "zwei wort3")
    path.write_text(changed)
    assert load(path).fingerprint != before.fingerprint


@pytest.fixture
def without_sources() -> Corpus:
    return open_corpus({"name": "iid", "train": 4, "valid": 2, "test": 2})


def test_the_fingerprint_without_sources_is_that_of_words_tokens_and_lengths(without_sources):
    words = "\n".join(without_sources.vocabulary.tokens)
    # Results of corpora without sources keep their identity.
    digest = hashlib.sha256(words.encode())
    for part in parts_of(without_sources):
        digest.update(part.tokens.numpy().tobytes())
        digest.update(part.lengths.numpy().tobytes())
    assert without_sources.fingerprint == digest.hexdigest()[:16]


def test_a_task_without_sources_has_no_sizes_of_them(without_sources):
    task = without_sources.task
    assert task.source_vocab == 0
    assert task.source_length == 0
