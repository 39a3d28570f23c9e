"""Encoding of sentences as padded token ids."""

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, PAD, START, UNKNOWN
from lmzoo.data.sequences import encode
from lmzoo.data.vocabulary import SPECIALS, Lines, build_vocabulary
from tests.tiny import quick

letters = st.sampled_from("abcdefgh")
texts = st.lists(st.lists(letters, max_size=9), max_size=12)


@quick
@given(texts, st.integers(3, 12), st.booleans(), st.booleans())
def test_a_row_is_start_tokens_end_and_padding(sentences, length, end, end_after_cut):
    vocabulary = build_vocabulary(sentences)
    ends = {"end": end, "end_after_cut": end_after_cut}
    encoded, cuts = encode(sentences, vocabulary, length=length, **ends)
    rows = encoded.tokens.tolist()
    lengths = encoded.lengths.tolist()
    assert encoded.tokens.shape == (len(sentences), length)
    for row, n, sentence in zip(rows, lengths, sentences, strict=True):
        words = vocabulary.encode(sentence)
        complete = [START] + words + [END] * end
        is_cut = len(complete) > length
        expected = complete[:length]
        if is_cut and end and end_after_cut:
            expected[-1] = END
        padding = [PAD] * (length - len(expected))
        assert row == expected + padding
        assert n == len(expected)
        if not is_cut:
            assert vocabulary.decode(row) == " ".join(sentence)
    assert cuts.tokens == sum(map(len, sentences))
    # All words are known, and their ids follow those of the special tokens.
    kept = encoded.tokens > UNKNOWN
    assert cuts.tokens - cuts.lost == int(kept.sum())


@quick
@given(texts, st.integers(1, 4), st.integers(5, 14))
def test_the_vocabulary_keeps_the_most_frequent_tokens(sentences, min_count, limit):
    counts = Counter(chain.from_iterable(sentences))
    vocabulary = build_vocabulary(sentences, min_count=min_count, limit=limit)
    # Equally frequent tokens are in the order of the alphabet.
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    expected = [token for token in ranked if counts[token] >= min_count]
    tokens = SPECIALS + tuple(expected)
    assert vocabulary.tokens == tokens[:limit]


def test_special_tokens_in_a_text_are_not_added_twice():
    words = ["<unk>", "a", "<pad>", "<pad>'", "<end>"]
    # "a" is the most frequent one.
    vocabulary = build_vocabulary([words, ["a"]])
    ids = vocabulary.encode(words)
    assert vocabulary.tokens == SPECIALS + ("a", "<end>'", "<pad>'", "<pad>''")
    assert vocabulary.decode(ids) == " ".join(words)
    assert vocabulary.encode(["<start>"]) == [UNKNOWN]


def test_lines_go_as_they_are_read_for_the_last_time():
    text = ["a b", "c"]
    lines = Lines(text)
    words = [["a", "b"], ["c"]]
    assert list(lines) == words
    lines.give_up(read=True)
    assert list(lines) == words
    assert not any(text)
