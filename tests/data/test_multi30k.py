"""Multi30k by word, by character and in pairs, in its published splits and in those of S0."""

import gzip
from pathlib import Path

import pytest

from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data.corpus import open_corpus
from lmzoo.data.multi30k import split_words
from tests.data.corpus_parts import decoded, parts_of
from tests.data.test_pairs import decode_pairs
from tests.user_errors import raises_user_error


@pytest.fixture
def folder(tmp_path):
    """Multi30k files with ten training captions, some plain and some gzipped."""
    train = [f"A man number {i}, in White.\n" for i in range(10)]
    (tmp_path / "train.en").write_text("".join(train))
    (tmp_path / "val.en").write_text("a man sings.\n")
    write_gzipped(tmp_path / "test_2016_flickr.en.gz", "a man in white.\n\n")
    write_gzipped(tmp_path / "train.de.gz", "Ein Mann in Weiß.\n")
    return tmp_path


def write_gzipped(path, text):
    path.write_bytes(gzip.compress(text.encode()))


def load(folder, name="multi30k_en", **fields):
    return open_corpus({"name": name} | fields, folder)


@pytest.fixture
def english(folder):
    return load(folder, train_unk=False)


def test_words_are_lower_case_with_punctuation_attached(english):
    train = decoded(english, english.train)
    assert train[3] == "a man number 3, in white."
    assert decoded(english, english.test) == ["a man in white."]


def test_a_word_that_training_does_not_have_is_unknown(english):
    assert "sings." not in english.vocabulary.tokens
    first, *_, unknown, end = english.valid.tokens[0, :5].tolist()
    assert [first, unknown, end] == [START, UNKNOWN, END]


def test_captions_have_twenty_words_and_no_floor(english):
    assert english.unit == "word"
    assert english.task.length == 20
    assert english.floor is None


def test_punctuation_can_be_split_from_words():
    words = split_words("A man's X-ray, (in 2.5 parts).", split_punctuation=True)
    assert words == ["a", "man's", "x-ray", ",", "(", "in", "2.5", "parts", ")", "."]


def test_the_published_split_holds_out_a_fifth_of_the_training_file(folder):
    corpus = load(folder, split="seed")
    train = decoded(corpus, corpus.train)
    valid = decoded(corpus, corpus.valid)
    assert len(train) == 8
    assert len(valid) == 2
    assert sorted(train + valid) == [f"a man number {i}, in white." for i in range(10)]
    # The published test file.
    assert decoded(corpus, corpus.test) == ["a man in white."]


def test_the_joint_vocabulary_adds_german_tokens_that_are_never_targets(folder, english):
    joint = load(folder, joint_vocab=True, train_unk=False)
    german_words = ["ein", "mann", "in", "weiß."]
    added = len(joint.vocabulary) - len(english.vocabulary)
    # German has four special tokens of its own.
    assert added == len(german_words) + 4
    assert decoded(joint, joint.train) == decoded(english, english.train)
    for target in joint.train.tokens.unique().tolist():
        token = joint.vocabulary.tokens[target]
        assert not token.startswith("<de>")


def test_only_complete_captions_by_character_end_with_end(folder):
    # "A man number 3, in White." has 25 characters, 27 with <start> and <end>.
    whole = load(folder, "multi30k_en_char", length=27)
    cut = load(folder, "multi30k_en_char", length=26)
    captions = decoded(whole, whole.train)
    assert whole.train.tokens[:, -1].eq(END).all()
    assert not cut.train.tokens.eq(END).any()
    assert decoded(cut, cut.train) == captions
    assert captions[3] == "A man number 3, in White."


def test_the_published_character_split_skips_a_line_and_has_no_end(folder):
    corpus = load(folder, "multi30k_en_char", split="seed", length=16)
    kept = [f"A man number {i}," for i in (1, 2, 3, 4, 6, 7, 8, 9)]
    assert decoded(corpus, corpus.train) == kept
    assert decoded(corpus, corpus.valid) == ["A man number 5,"]
    assert not corpus.train.tokens.eq(END).any()
    # Occurs only after the cut.
    assert "W" not in corpus.vocabulary.tokens


@pytest.fixture(scope="module")
def real_data():
    """Folder of the real data next to the checkout; licences keep it out of the repository."""
    found = Path(__file__).parents[3] / "shared" / "data"
    if not found.is_dir():
        pytest.skip(f"no real data in {found}")
    return found


SIZES = {"official": [29_000, 1_014, 1_000], "seed": [23_200, 5_800, 1_000]}
JOINT = 38_783
"""The words that S0 reports for the joint vocabulary."""
REAL = [("official", 14_450), ("seed", 14_450), ("seed", JOINT)]


@pytest.mark.parametrize(("split", "vocab"), REAL)
def test_the_real_words(real_data, split, vocab):
    corpus = load(real_data, split=split, joint_vocab=vocab == JOINT)
    parts = parts_of(corpus)
    assert len(corpus.vocabulary) == vocab
    assert list(map(len, parts)) == SIZES[split]
    for part in parts:
        assert part.lengths.max() == corpus.task.length == 20
    # The vocabulary of S0's split includes the held-out captions.
    for part in (corpus.train, corpus.valid):
        has_unknown = part.tokens.eq(UNKNOWN).any()
        assert has_unknown == (split == "official")


@pytest.fixture
def pairs_folder(folder):
    """Multi30k files with ten training pairs; one side of the second pair is blank."""
    english = folder / "train.en"
    # A pair with an empty side is left out.
    text = english.read_text().replace("A man number 1, in White.", "")
    english.write_text(text)
    german = [f"Ein Mann Nummer {i}, in Weiß.\n" for i in range(10)]
    write_gzipped(folder / "train.de.gz", "".join(german))
    (folder / "val.de").write_text("ein mann singt.\n")
    (folder / "test_2016_flickr.de").write_text("ein mann in weiß.\n\n")
    return folder


def test_captions_are_paired_with_their_translations(pairs_folder):
    corpus = load(pairs_folder, "multi30k_de_en", train_unk=False)
    expected = []
    for i in (0, 2, 3, 4, 5, 6, 7, 8, 9):
        german = f"ein mann nummer {i}, in weiß."
        expected.append((german, f"a man number {i}, in white."))
    assert decode_pairs(corpus, corpus.train) == expected


def test_a_source_has_unknown_words_of_its_own(pairs_folder):
    corpus = load(pairs_folder, "multi30k_de_en", train_unk=False)
    source, _ = corpus.valid.sources
    # The third word is "singt.".
    assert source[0, 2:4].tolist() == [UNKNOWN, END]


def test_translations_have_twenty_words(pairs_folder):
    corpus = load(pairs_folder, "multi30k_de_en")
    assert len(corpus.test) == 1
    assert corpus.task.length == 20
    assert corpus.task.source_length == 19


def test_files_of_different_length_are_rejected(pairs_folder):
    (pairs_folder / "val.de").write_text("eins.\nzwei.\n")
    with raises_user_error("multi30k_de_en", "val.de has 2 lines", "val.en 1", "fetch both"):
        load(pairs_folder, "multi30k_de_en")


def test_a_missing_file_is_named(pairs_folder):
    (pairs_folder / "val.de").unlink()
    with raises_user_error("multi30k_de_en", "val.de", pairs_folder):
        load(pairs_folder, "multi30k_de_en")
