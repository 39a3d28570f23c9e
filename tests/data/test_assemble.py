"""Encoding of sentences as padded token ids."""

from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, PAD, START
from lmzoo.data.sequences import encode
from lmzoo.data.vocabulary import build_vocabulary
from tests.tiny import quick

letters = st.sampled_from("abcdefgh")
texts = st.lists(st.lists(letters, max_size=9), max_size=12)


@quick
@given(texts)
def test_decode_inverts_encode(sentences):
    vocabulary = build_vocabulary(sentences)
    encoded = encode(sentences, vocabulary, length=12, end=True)
    decoded = [vocabulary.decode(row) for row in encoded.tokens.tolist()]
    assert decoded == [" ".join(sentence) for sentence in sentences]


@quick
@given(texts, st.integers(3, 12), st.booleans(), st.booleans())
def test_a_row_is_start_tokens_end_and_padding(sentences, length, end, end_after_cut):
    vocabulary = build_vocabulary(sentences)
    encoded = encode(sentences, vocabulary, length=length, end=end, end_after_cut=end_after_cut)
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
