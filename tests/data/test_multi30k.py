import gzip
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data.multi30k import SHA256, words
from lmzoo.data.open import open_corpus
from tests.data.refused import refused
from tests.tiny import quick


@pytest.fixture
def folder(tmp_path):
    """A Multi30k of ten captions; some files plain, some zipped, as users have them."""
    train = [f"A man number {i}, in White." for i in range(10)]
    (tmp_path / "train.en").write_text("\n".join(train) + "\n")
    (tmp_path / "val.en").write_text("a man sings.\n")
    (tmp_path / "test_2016_flickr.en.gz").write_bytes(gzip.compress(b"a man in white.\n\n"))
    (tmp_path / "train.de.gz").write_bytes(gzip.compress("Ein Mann in Weiß.\n".encode()))
    return tmp_path


def open_words(folder, **fields):
    return open_corpus({"name": "multi30k_en", **fields}, folder)


def open_chars(folder, **fields):
    return open_corpus({"name": "multi30k_en_char", **fields}, folder)


def decoded(corpus, part):
    return [corpus.vocabulary.decode(row) for row in part.tokens.tolist()]


def test_words_are_lower_case_and_glued(folder):
    corpus = open_words(folder)
    assert decoded(corpus, corpus.train)[3] == "a man number 3, in white."
    assert decoded(corpus, corpus.test) == ["a man in white."]
    assert corpus.valid.tokens[0].tolist()[:5] == [
        START,
        *corpus.valid.tokens[0, 1:3],
        UNKNOWN,
        END,
    ]
    assert "sings." not in corpus.vocabulary.tokens
    assert (corpus.unit, corpus.task.length, corpus.floor) == ("word", 20, None)


def test_end_follows_a_cut(folder):
    corpus = open_words(folder, max_words=2)
    assert corpus.train.tokens[:, -1].eq(END).all()
    assert decoded(corpus, corpus.train) == ["a man"] * 10


def test_the_seeds_words_hold_out_a_fifth_of_the_training_file(folder):
    corpus = open_words(folder, split="seed")
    train, valid = decoded(corpus, corpus.train), decoded(corpus, corpus.valid)
    assert (len(train), len(valid)) == (8, 2)
    assert sorted(train + valid) == sorted(f"a man number {i}, in white." for i in range(10))
    assert decoded(corpus, corpus.test) == ["a man in white."]  # still the official file


def test_the_joint_vocabulary_adds_german_classes_that_are_never_targets(folder):
    alone, both = open_words(folder), open_words(folder, joint_vocab=True)
    german = {"ein", "mann", "in", "weiß."}
    assert len(both.vocabulary) == len(alone.vocabulary) + len(german) + 4
    assert decoded(both, both.train) == decoded(alone, alone.train)
    targets = {both.vocabulary.tokens[i] for i in both.train.tokens.unique().tolist()}
    assert not any(token.startswith("<de>") for token in targets)


def test_joint_vocabulary_needs_the_german_file(folder):
    (folder / "train.de.gz").unlink()
    assert len(open_words(folder).train) == 10
    with refused("multi30k_en", "train.de"):
        open_words(folder, joint_vocab=True)


@quick
@given(st.text(max_size=20))
def test_splitting_punctuation_loses_nothing(line):
    assert "".join(words(line, split_punctuation=True)) == "".join(line.lower().split())


def test_splitting_punctuation_keeps_words_whole():
    line = "A man's X-ray, (in 2.5 parts)."
    assert words(line, split_punctuation=True) == (
        ["a", "man's", "x-ray", ",", "(", "in", "2.5", "parts", ")", "."]
    )


def test_characters_end_where_the_caption_is_whole(folder):
    # "A man number 3, in White." has 25 characters, 27 with both ends.
    whole, cut = open_chars(folder, length=27), open_chars(folder, length=26)
    assert whole.train.tokens[:, -1].eq(END).all()
    assert not cut.train.tokens.eq(END).any()
    assert decoded(cut, cut.train) == decoded(whole, whole.train)
    assert decoded(whole, whole.train)[3] == "A man number 3, in White."


def test_the_seeds_characters_skip_a_line_and_have_no_end(folder):
    corpus = open_chars(folder, split="seed", length=16)
    assert decoded(corpus, corpus.train) == [
        f"A man number {i}," for i in range(1, 10) if (i - 1) % 5 != 4
    ]
    assert decoded(corpus, corpus.valid) == ["A man number 5,"]
    assert not corpus.train.tokens.eq(END).any()
    assert "W" not in corpus.vocabulary.tokens  # only ever beyond the cut


@pytest.mark.parametrize("open_one", [open_words, open_chars])
def test_a_file_that_is_missing_is_named(folder, open_one):
    (folder / "val.en").unlink()
    with refused("multi30k_en", "val.en", folder):
        open_one(folder)


def test_the_checksums_are_those_of_the_real_files(real):
    for name, digest in SHA256.items():
        packed = (real / "multi30k" / f"{name}.gz").read_bytes()
        assert hashlib.sha256(packed).hexdigest() == digest, name


FACTS = {
    # S0 reports V = 38,783 for the joint vocabulary.
    ("official", False): ((29_000, 1_014, 1_000), 14_450),
    ("seed", False): ((23_200, 5_800, 1_000), 14_450),
    ("seed", True): ((23_200, 5_800, 1_000), 38_783),
}


@pytest.mark.parametrize(("split", "joint"), FACTS)
def test_the_real_words(real, split, joint):
    corpus = open_words(real, split=split, joint_vocab=joint)
    parts = (corpus.train, corpus.valid, corpus.test)
    assert (tuple(map(len, parts)), len(corpus.vocabulary)) == FACTS[split, joint]
    assert corpus.task.length == 20
    for part in parts:
        assert 0 <= part.tokens.min() <= part.tokens.max() < len(corpus.vocabulary)
        last = part.tokens.gather(1, part.lengths[:, None] - 1)
        assert last.eq(END).all()
        assert part.tokens[:, 0].eq(START).all()
        assert part.lengths.max() == 20
    assert not corpus.train.tokens.eq(UNKNOWN).any()
    # The seed's vocabulary saw its held-out captions; the official one did not.
    assert corpus.valid.tokens.eq(UNKNOWN).any() == (split == "official")


def test_the_real_characters(real):
    clean, seed = open_chars(real), open_chars(real, split="seed")
    assert [len(part) for part in (clean.train, clean.valid, clean.test)] == [29_000, 1_014, 1_000]
    assert [len(part) for part in (seed.train, seed.valid, seed.test)] == [23_200, 5_799, 1_000]
    # S0 reports V = 82, two specials among them; ours are four.
    assert len(clean.vocabulary) == len(seed.vocabulary) == 80 + 4
    assert clean.vocabulary.decode(clean.train.tokens[0].tolist()).startswith(
        "Two young, White males"
    )
    assert seed.vocabulary.decode(seed.train.tokens[0].tolist()).startswith(
        "Several men in hard hats"
    )
    assert not seed.train.tokens.eq(END).any()
    assert clean.train.tokens.eq(END).any(dim=1).double().mean() > 0.9
    assert seed.train.lengths.max() == 100
