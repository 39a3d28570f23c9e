"""Multi30k by word, by character and in pairs, in its published splits and in those of S0."""

import gzip
from pathlib import Path

import pytest

from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data.corpus import open_corpus
from lmzoo.data.multi30k import split_words
from tests.data.test_pairs import decode_pairs
from tests.user_errors import raises_user_error


@pytest.fixture
def folder(tmp_path):
    """Multi30k files with ten training captions, some plain and some gzipped."""
    train = [f"A man number {i}, in White." for i in range(10)]
    (tmp_path / "train.en").write_text("\n".join(train) + "\n")
    (tmp_path / "val.en").write_text("a man sings.\n")
    (tmp_path / "test_2016_flickr.en.gz").write_bytes(gzip.compress(b"a man in white.\n\n"))
    (tmp_path / "train.de.gz").write_bytes(gzip.compress("Ein Mann in Weiß.\n".encode()))
    return tmp_path


def load(folder, kind="", **fields):
    return open_corpus({"name": f"multi30k_{kind or 'en'}", **fields}, folder)


def decoded(corpus, part):
    return [corpus.vocabulary.decode(row) for row in part.tokens.tolist()]


def test_words_are_lower_case_with_punctuation_attached(folder):
    corpus = load(folder, train_unk=False)
    assert decoded(corpus, corpus.train)[3] == "a man number 3, in white."
    assert decoded(corpus, corpus.test) == ["a man in white."]
    first, *_, unknown, end = corpus.valid.tokens[0, :5].tolist()
    assert (first, unknown, end) == (START, UNKNOWN, END)
    assert "sings." not in corpus.vocabulary.tokens
    assert (corpus.unit, corpus.task.length, corpus.floor) == ("word", 20, None)
    line = "A man's X-ray, (in 2.5 parts)."
    assert split_words(line, split_punctuation=True) == (
        ["a", "man's", "x-ray", ",", "(", "in", "2.5", "parts", ")", "."]
    )


def test_the_published_split_holds_out_a_fifth_of_the_training_file(folder):
    corpus = load(folder, split="seed")
    train, valid = decoded(corpus, corpus.train), decoded(corpus, corpus.valid)
    assert (len(train), len(valid)) == (8, 2)
    assert sorted(train + valid) == sorted(f"a man number {i}, in white." for i in range(10))
    assert decoded(corpus, corpus.test) == ["a man in white."]  # the published test file


def test_the_joint_vocabulary_adds_german_tokens_that_are_never_targets(folder):
    english, joint = load(folder), load(folder, joint_vocab=True)
    german = {"ein", "mann", "in", "weiß."}
    assert len(joint.vocabulary) == len(english.vocabulary) + len(german) + 4
    assert decoded(joint, joint.train) == decoded(english, english.train)
    targets = {joint.vocabulary.tokens[i] for i in joint.train.tokens.unique().tolist()}
    assert not any(token.startswith("<de>") for token in targets)


def test_only_complete_captions_by_character_end_with_end(folder):
    # "A man number 3, in White." has 25 characters, 27 with <start> and <end>.
    whole, cut = (load(folder, "en_char", length=length) for length in (27, 26))
    assert whole.train.tokens[:, -1].eq(END).all()
    assert not cut.train.tokens.eq(END).any()
    assert decoded(cut, cut.train) == decoded(whole, whole.train)
    assert decoded(whole, whole.train)[3] == "A man number 3, in White."


def test_the_published_character_split_skips_a_line_and_has_no_end(folder):
    corpus = load(folder, "en_char", split="seed", length=16)
    kept = [f"A man number {i}," for i in range(1, 10)]
    assert decoded(corpus, corpus.train) == [line for i, line in enumerate(kept) if i % 5 != 4]
    assert decoded(corpus, corpus.valid) == ["A man number 5,"]
    assert not corpus.train.tokens.eq(END).any()
    assert "W" not in corpus.vocabulary.tokens  # occurs only after the cut


@pytest.fixture(scope="module")
def real_data():
    """Folder of the real data next to the checkout; licences keep it out of the repository."""
    found = Path(__file__).parents[3] / "shared" / "data"
    return found if found.is_dir() else pytest.skip(f"no real data in {found}")


@pytest.mark.parametrize(
    ("split", "vocab"), [("official", 14_450), ("seed", 14_450), ("seed", 38_783)]
)
def test_the_real_words(real_data, split, vocab):
    """S0 reports V = 38,783 for the joint vocabulary."""
    corpus = load(real_data, split=split, joint_vocab=vocab == 38_783)
    parts = (corpus.train, corpus.valid, corpus.test)
    sizes = [29_000, 1_014, 1_000] if split == "official" else [23_200, 5_800, 1_000]
    assert ([*map(len, parts)], len(corpus.vocabulary)) == (sizes, vocab)
    assert all(part.lengths.max() == corpus.task.length == 20 for part in parts)
    # The vocabulary of S0's split includes the held-out captions.
    for part in parts[:2]:
        assert part.tokens.eq(UNKNOWN).any() == (split == "official")


@pytest.fixture
def pairs_folder(folder):
    """Multi30k files with ten training pairs; one side of the second pair is blank."""
    english = folder / "train.en"
    english.write_text(english.read_text().replace("A man number 1, in White.", ""))
    german = "".join(f"Ein Mann Nummer {i}, in Weiß.\n" for i in range(10))
    (folder / "train.de.gz").write_bytes(gzip.compress(german.encode()))
    (folder / "val.de").write_text("ein mann singt.\n")
    (folder / "test_2016_flickr.de").write_text("ein mann in weiß.\n\n")
    return folder


def test_captions_are_paired_with_their_translations(pairs_folder):
    corpus = load(pairs_folder, "de_en", train_unk=False)
    assert decode_pairs(corpus, corpus.train) == [
        (f"ein mann nummer {i}, in weiß.", f"a man number {i}, in white.")
        for i in range(10)
        if i != 1
    ]
    assert corpus.valid.sources[0][0, :4].tolist()[2:] == [UNKNOWN, END]
    assert (len(corpus.test), corpus.task.length, corpus.task.source_length) == (1, 20, 19)


def test_files_of_different_length_are_rejected(pairs_folder):
    (pairs_folder / "val.de").write_text("eins.\nzwei.\n")
    with raises_user_error("multi30k_de_en", "val.de has 2 lines", "val.en 1", "fetch both"):
        load(pairs_folder, "de_en")
    (pairs_folder / "val.de").unlink()
    with raises_user_error("multi30k_de_en", "val.de", pairs_folder):
        load(pairs_folder, "de_en")
