"""Characters and bytes of the scored text, by hand and against the decoded tokens."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data.sequences import assemble
from lmzoo.data.text_facts import TextSize
from lmzoo.data.vocabulary import build_vocabulary
from tests.tiny import quick


def corpus_of(test, train=None, *, joiner=" ", length=20, end=True, end_after_cut=False):
    if train is None:
        train = test
    vocabulary = build_vocabulary(train, joiner=joiner)
    options = {"length": length, "end": end, "end_after_cut": end_after_cut}
    return assemble(
        "hand", (train, train, test), vocabulary, unit="word", source="by hand", **options
    )


@pytest.fixture
def houses():
    """Two test sentences, in which `blaues` is unknown."""
    train = [["ein", "weißes", "haus"]]
    return corpus_of([["ein", "blaues", "haus"], ["weißes", "ein"]], train)


def test_characters_bytes_and_words_by_hand(houses):
    # "ein blaues haus\n" has 16 characters, "weißes ein\n" has 11 and one more byte.
    assert houses.test_size == TextSize(16 + 11, 16 + 12, 4 + 3)
    assert houses.test.num_scored == 4 + 3


def test_the_size_of_an_unknown_word_is_not_known(houses):
    assert dataclasses.replace(houses, test_text=None).test_size is None


CUTS = [
    ({"length": 4}, TextSize(8, 8, 3)),  # "ab cde f"
    ({"length": 4, "end_after_cut": True}, TextSize(7, 7, 3)),
    ({"length": 4, "end": False}, TextSize(8, 8, 3)),
    ({"length": 9, "end": False}, TextSize(11, 11, 4)),  # no newline
]


@pytest.mark.parametrize(("fields", "size"), CUTS, ids=str)
def test_tokens_after_a_cut_are_not_counted(fields, size):
    """The length is <start> and the places after it."""
    assert corpus_of([["ab", "cde", "f", "gh"]], **fields).test_size == size


def test_a_cut_ends_a_word():
    assert corpus_of([["ab", "cd", "ef", "gh"]] * 5, length=4).test_size.words == 3 * 5


def test_a_cut_in_a_word_ends_it():
    assert corpus_of(["ab cd ef gh"] * 5, joiner="", length=6).test_size.words == 2 * 5


words = st.lists(st.sampled_from(["a", "männer", "of", "日本"]), max_size=7)


@quick
@given(st.lists(words, min_size=1, max_size=6).filter(any), st.booleans(), st.integers(3, 9))
def test_the_size_is_that_of_the_decoded_tokens(sentences, end, length):
    corpus = corpus_of(sentences, end=end, length=length)
    decoded = dataclasses.replace(corpus, test_text=None)
    assert decoded.test_size == corpus.test_size
