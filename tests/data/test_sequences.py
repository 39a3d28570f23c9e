"""Encoding of sentences as padded token ids."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, PAD, START, UNKNOWN
from lmzoo.data.sequences import encode
from lmzoo.data.vocabulary import SPECIALS, build_vocabulary
from tests.tiny import quick

letters = st.sampled_from("abcdefgh")
texts = st.lists(st.lists(letters, max_size=9), max_size=12)


@quick
@given(texts, st.integers(3, 12), st.booleans(), st.booleans())
def test_a_row_is_start_tokens_end_and_padding(sentences, length, end, end_after_cut):
    vocabulary = build_vocabulary(sentences)
    encoded, cuts = encode(
        sentences, vocabulary, length=length, end=end, end_after_cut=end_after_cut
    )
    assert encoded.tokens.shape == (len(sentences), length)
    for row, n, sentence in zip(
        encoded.tokens.tolist(), encoded.lengths.tolist(), sentences, strict=True
    ):
        complete = [START, *vocabulary.encode(sentence)] + [END] * end
        if len(complete) <= length:
            expected = complete
        elif end and end_after_cut:
            expected = [*complete[: length - 1], END]
        else:
            expected = complete[:length]
        if end and not end_after_cut and len(complete) > length:
            assert END not in row
        assert row == expected + [PAD] * (length - len(expected))
        assert n == len(expected)
        if len(complete) <= length:
            assert vocabulary.decode(row) == " ".join(sentence)
    assert cuts.tokens == sum(map(len, sentences))
    assert cuts.tokens - cuts.lost == int((encoded.tokens > UNKNOWN).sum())


@quick
@given(texts, st.integers(1, 4), st.integers(5, 14))
def test_the_vocabulary_keeps_the_most_frequent_tokens(sentences, min_count, limit):
    counts = Counter(token for sentence in sentences for token in sentence)
    vocabulary = build_vocabulary(sentences, min_count=min_count, limit=limit)
    kept = vocabulary.tokens[len(SPECIALS) :]
    expected = sorted(counts, key=lambda t: (-counts[t], t))
    expected = [t for t in expected if counts[t] >= min_count]
    assert list(kept) == expected[: limit - len(SPECIALS)]


def test_special_tokens_in_a_text_are_not_added_twice():
    words = ["<unk>", "a", "<pad>", "<pad>'", "<end>"]
    vocabulary = build_vocabulary([words, ["a"]])
    assert vocabulary.tokens == (*SPECIALS, "a", "<end>'", "<pad>'", "<pad>''")
    assert vocabulary.decode(vocabulary.encode(words)) == " ".join(words)
    assert vocabulary.encode(["<start>"]) == [UNKNOWN]
