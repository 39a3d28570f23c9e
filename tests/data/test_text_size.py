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
    train = test if train is None else train
    return assemble(
        "hand", (train, train, test), build_vocabulary(train, joiner=joiner), length=length,
        end=end, end_after_cut=end_after_cut, unit="word", source="by hand",
    )  # fmt: skip


def test_by_hand():
    train = [["ein", "weißes", "haus"]]
    # "ein blaues haus\n" has 16 characters; blaues is unknown. "weißes ein\n" has 11 and 12 bytes.
    corpus = corpus_of([["ein", "blaues", "haus"], ["weißes", "ein"]], train)
    assert corpus.test_size == TextSize(16 + 11, 16 + 12, 4 + 3)
    assert corpus.test.num_scored == 4 + 3
    assert dataclasses.replace(corpus, test_text=None).test_size is None, "blaues is not known"


def test_tokens_after_a_cut_are_not_counted():
    sentences = [["ab", "cde", "f", "gh"]]
    # <start> and three more places
    assert corpus_of(sentences, length=4).test_size == TextSize(8, 8, 3)  # "ab cde f"
    assert corpus_of(sentences, length=4, end_after_cut=True).test_size == TextSize(7, 7, 3)
    assert corpus_of(sentences, length=4, end=False).test_size == TextSize(8, 8, 3)
    assert corpus_of(sentences, length=9, end=False).test_size == TextSize(11, 11, 4)  # no newline


@pytest.mark.parametrize(("joiner", "right"), [(" ", 3 * 5), ("", 2 * 5)])
def test_a_cut_ends_a_word(joiner, right):
    sentence = ["ab", "cd", "ef", "gh"] if joiner else "ab cd ef gh"
    corpus = corpus_of([sentence] * 5, joiner=joiner, length=4 + (not joiner) * 2)
    assert corpus.test_size.words == right


words = st.lists(st.sampled_from(["a", "männer", "of", "日本"]), max_size=7)


@quick
@given(st.lists(words, min_size=1, max_size=6).filter(any), st.booleans(), st.integers(3, 9))
def test_the_size_is_that_of_the_decoded_tokens(sentences, end, length):
    corpus = corpus_of(sentences, end=end, length=length)
    decoded = dataclasses.replace(corpus, test_text=None)
    assert decoded.test_size == corpus.test_size
