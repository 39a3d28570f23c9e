"""Characters and bytes of the scored text, by hand and against the decoded tokens."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data.sequences import assemble
from lmzoo.data.text_facts import TextSize
from lmzoo.data.vocabulary import build_vocabulary
from tests.cases import cases
from tests.tiny import quick

OPTIONS = {"length": 20, "end": True, "unit": "word", "source": "by hand"}


def corpus_of(test, train=None, joiner=" ", **changes):
    if train is None:
        train = test
    vocabulary = build_vocabulary(train, joiner=joiner)
    options = OPTIONS | changes
    return assemble("hand", (train, train, test), vocabulary, **options)


@pytest.fixture
def houses():
    """Two test sentences, in which `blaues` is unknown."""
    train = [["ein", "weißes", "haus"]]
    test = [["ein", "blaues", "haus"], ["weißes", "ein"]]
    return corpus_of(test, train)


def test_characters_bytes_and_words_by_hand(houses):
    # "ein blaues haus\n" has 16 characters, "weißes ein\n" has 11 and one more byte.
    assert houses.test_size == TextSize(16 + 11, 16 + 12, 4 + 3)
    assert houses.test.num_scored == 4 + 3


def test_the_size_of_an_unknown_word_is_not_known(houses):
    # Without the text, its size is that of the decoded tokens.
    decoded = dataclasses.replace(houses, test_text=None)
    assert decoded.test_size is None


@cases("data/cases.toml", "sizes_of_cuts", "fields, characters, words")
def test_tokens_after_a_cut_are_not_counted(fields, characters, words):
    # The text is ASCII, so it has as many bytes as characters.
    expected = TextSize(characters, characters, words)
    text = [["ab", "cde", "f", "gh"]]
    assert corpus_of(text, **fields).test_size == expected


def test_a_cut_ends_a_word():
    text = [["ab", "cd", "ef", "gh"]] * 5
    # <start> and three words have a length of 4.
    assert corpus_of(text, length=4).test_size.words == 3 * 5


def test_a_cut_in_a_word_ends_it():
    corpus = corpus_of(["ab cd ef gh"] * 5, joiner="", length=6)
    # What is left is "ab cd".
    assert corpus.test_size.words == 2 * 5


words = st.lists(st.sampled_from(["a", "männer", "of", "日本"]), max_size=7)


@quick
@given(st.lists(words, min_size=1, max_size=6).filter(any), st.booleans(), st.integers(3, 9))
def test_the_size_is_that_of_the_decoded_tokens(sentences, end, length):
    corpus = corpus_of(sentences, end=end, length=length)
    decoded = dataclasses.replace(corpus, test_text=None)
    assert decoded.test_size == corpus.test_size
