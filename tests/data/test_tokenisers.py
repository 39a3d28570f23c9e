"""Tokenisers of contiguous texts: nothing is lost, stretches change nothing, faults are named."""

import hashlib
import os
import subprocess
import sys
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.config import to_dict
from lmzoo.contract import START, UNKNOWN
from lmzoo.data import tokenisers
from lmzoo.data.corpus import open_corpus
from lmzoo.data.streams import StreamFileConfig
from lmzoo.data.text_facts import TextSize
from lmzoo.data.tokenisers import cut_stretches
from tests.data.small_text import TEXT, UNITS, spec, tokeniser
from tests.tiny import quick
from tests.user_errors import raises_user_error


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize("unit", UNITS)
def test_ids_stand_for_the_text(unit):
    made = tokeniser(unit)
    ids = made.encode(TEXT.encode()).tolist()
    assert min(ids) > UNKNOWN
    decoded = made.vocabulary.decode(ids)
    assert decoded == (TEXT.replace("\n ", "\n") if unit == "word" else TEXT)
    assert made.vocabulary.encode(made.vocabulary.split(TEXT)) == ids


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("stretch", [9, 64, 1000])
def test_stretches_have_the_ids_of_the_whole_text(unit, stretch, monkeypatch):
    text = TEXT.replace(" sees", "     sees")  # blanks that one byte pair joins
    made = tokeniser(unit, text, **({"vocab": 320} if unit == "bpe" else {}))
    whole = made.encode(text.encode()).tolist()
    monkeypatch.setattr(tokenisers, "STRETCH", stretch)
    parts = [made.encode(part).tolist() for part in made.stretches(memoryview(text.encode()))]
    assert len(parts) > 9
    assert list(chain.from_iterable(parts)) == whole


@quick
@given(st.text(st.sampled_from("ab é日\n\t "), max_size=90), st.integers(4, 30), st.booleans())
def test_stretches_are_the_text_and_cut_no_word(text, size, at_blanks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenisers, "STRETCH", size)
        parts = [
            part.decode() for part in cut_stretches(memoryview(text.encode()), at_blanks=at_blanks)
        ]
    assert "".join(parts) == text
    if at_blanks:
        assert [word for part in parts for word in part.split()] == text.split()


@pytest.mark.parametrize("unit", UNITS)
def test_bits_and_words_are_those_of_the_raw_text_for_every_unit(file, unit):
    corpus = open_corpus(spec(file, unit))
    begin = int(0.95 * len(TEXT))
    if unit == "word":  # the word that the cut divides belongs to the test split
        begin = max(TEXT.rindex(blank, 0, begin) for blank in " \n") + 1
    test = TEXT[begin:]
    words = len(test.split()) + test.count("\n")
    assert corpus.test_size == TextSize(len(test), len(test.encode()), words)
    ids = corpus.test.tokens[corpus.test.scored].tolist()
    count = {"char": len(test), "byte": len(test.encode()), "word": words, "bpe": len(ids)}[unit]
    assert corpus.test.num_scored == len(ids) == count
    assert "".join(corpus.vocabulary.decode(ids).split()) == "".join(test.split())
    assert (corpus.train.tokens[:, 0] == START).all()


def test_rare_words_are_unknown_in_training_only_if_held_out_words_are(file):
    rare = " ".join(f"r{i}" for i in range(200)) + "\n"
    file.write_text(rare + TEXT, encoding="utf-8")
    corpus = open_corpus(spec(file, "word"))
    assert not (corpus.train.stream == UNKNOWN).any()
    file.write_text(rare + TEXT + "Ω " * 40, encoding="utf-8")
    corpus = open_corpus(spec(file, "word"))
    replaced = int((corpus.train.stream == UNKNOWN).sum())
    assert 160 < replaced < 240  # about as many as words that occur once
    assert len(corpus.vocabulary) > 200
    assert corpus.fingerprint == open_corpus(spec(file, "word")).fingerprint


def test_byte_pairs_are_a_function_of_the_text_and_the_size(tmp_path):
    """Threads and hash seeds of other processes change nothing."""
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 4, encoding="utf-8")
    code = (
        "from lmzoo.data.corpus import open_corpus;"
        f"c = open_corpus({spec(path, 'bpe', vocab=330)!r});"
        "import hashlib; json = c.vocabulary.json.encode();"
        "print(c.fingerprint, hashlib.sha256(json).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "2", "RAYON_NUM_THREADS": "2"}
    answer = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    corpus = open_corpus(spec(path, "bpe", vocab=330))
    digest = hashlib.sha256(corpus.vocabulary.json.encode()).hexdigest()
    assert answer.split() == [corpus.fingerprint, digest]


def test_byte_pairs_have_the_given_vocabulary_size(file):
    assert open_corpus(spec(file, "bpe", vocab=280)).task.vocab == 280
    with raises_user_error("vocab=259", "260"):
        open_corpus(spec(file, "bpe", vocab=259))


def test_a_missing_package_says_what_to_install(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with raises_user_error("tokenizers", "pip install tokenizers"):
        open_corpus(spec(file, "bpe"))
    open_corpus(spec(file, "word"))


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"unit": "byte", "vocab": 300}, ("vocab=300", "byte")),
        ({"unit": "bpe", "vocab": 300, "min_count": 2}, ("min_count=2", "bpe")),
        ({"unit": "syllable"}, ("unit", "syllable")),
    ],
)
def test_fields_that_exclude_each_other_are_refused(fields, parts):
    with raises_user_error(*parts):
        open_corpus({"name": "stream", "path": "text.txt", **fields})


def test_texts_by_character_keep_their_identity():
    assert to_dict(StreamFileConfig(path="a.txt")) == {
        "path": "a.txt", "block": 64, "stride": 0, "blocks": 0,
    }  # fmt: skip
