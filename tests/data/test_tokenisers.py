"""Vocabularies of contiguous texts: nothing is lost, stretches and the cache change nothing."""

import os
import subprocess
import sys
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.config import to_dict
from lmzoo.contract import START, UNKNOWN
from lmzoo.data import streams, tokenisers
from lmzoo.data.corpus import open_corpus
from lmzoo.data.text_facts import TextSize
from lmzoo.data.tokenisers import VOCABULARIES, cut_stretches
from lmzoo.data.user_files import StreamFileConfig
from tests.cases import cases
from tests.tiny import quick
from tests.user_errors import raises_user_error

TEXT = "".join(
    f"the {['cat', 'dog', 'bird'][i % 3]} sees {i % 7} mäuse 日本 now.\n{' ' * (i % 2)}"
    for i in range(300)
)
every_unit = pytest.mark.parametrize("unit", VOCABULARIES)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def spec(file, unit, **fields):
    if unit == "bpe":
        fields.setdefault("vocab", 290)
    return {"name": "stream", "path": str(file), "unit": unit, "block": 8, **fields}


def learned(unit, text=TEXT, limit=300):
    return VOCABULARIES[unit].learn([text], limit if unit == "bpe" else 0)


@every_unit
def test_ids_stand_for_the_text(unit):
    made = learned(unit)
    ids = made.read(TEXT.encode()).tolist()
    assert min(ids) > UNKNOWN
    assert made.decode(ids) == (TEXT.replace("\n ", "\n") if unit == "word" else TEXT)
    assert made.encode(made.split(TEXT)) == ids
    new = made.read("the ☃".encode()).tolist()  # nor is the snowman in the text
    assert new == made.encode(made.split("the ☃"))
    assert (new[-1] == UNKNOWN) == (unit in ("char", "word"))


@every_unit
@pytest.mark.parametrize("stretch", [9, 64, 1000])
def test_stretches_have_the_ids_of_the_whole_text(unit, stretch, monkeypatch):
    text = TEXT.replace(" sees", "     sees")  # blanks that one byte pair joins
    made = learned(unit, text, 320)
    whole = made.read(text.encode()).tolist()
    monkeypatch.setattr(tokenisers, "STRETCH", stretch)
    stretches = list(cut_stretches(memoryview(text.encode()), at_blanks=made.at_blanks))
    assert len(stretches) > 9
    assert list(chain.from_iterable(made.read(part).tolist() for part in stretches)) == whole
    if unit != "bpe":
        assert VOCABULARIES[unit].learn(map(bytes.decode, stretches)) == made


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


@every_unit
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
    assert not (open_corpus(spec(file, "word")).train.stream == UNKNOWN).any()
    file.write_text(rare + TEXT + "Ω " * 40, encoding="utf-8")
    corpus = open_corpus(spec(file, "word"))
    replaced = int((corpus.train.stream == UNKNOWN).sum())
    assert 160 < replaced < 240  # about as many as words that occur once
    assert len(corpus.vocabulary) > 200


# The cache


@pytest.fixture
def cached(file, monkeypatch):
    monkeypatch.setattr(streams, "CACHED_FROM", 0)
    monkeypatch.setattr(tokenisers, "STRETCH", 700)
    return file


def forbid_encoding(monkeypatch):
    monkeypatch.setattr(streams.TextStream, "_encode", lambda *_: pytest.fail("encoded again"))


@every_unit
def test_a_corpus_from_the_cache_is_the_same(cached, unit, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(streams, "CACHED_FROM", 2**23)
        plain = open_corpus(spec(cached, unit))
    first = open_corpus(spec(cached, unit))
    forbid_encoding(monkeypatch)
    again = open_corpus(spec(cached, unit))
    for corpus in (first, again):
        assert corpus.fingerprint == plain.fingerprint
        assert corpus.vocabulary == plain.vocabulary
        assert corpus.test_size == plain.test_size
        assert corpus.facts == plain.facts


def test_the_cache_knows_the_settings(cached):
    assert [open_corpus(spec(cached, "bpe", vocab=v)).task.vocab for v in (280, 290)] == [280, 290]


def flip(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
        lambda data: flip(data, len(data) // 2),
        lambda data: flip(data, data.index(b'"sizes": [') + 11),
        lambda _: b"[]",
    ],
)
def test_a_damaged_file_is_encoded_again(cached, damage, monkeypatch):
    expected = open_corpus(spec(cached, "char")).fingerprint
    (path,) = (cached.parent / "cache" / "tokens").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert open_corpus(spec(cached, "char")).fingerprint == expected
    forbid_encoding(monkeypatch)
    assert open_corpus(spec(cached, "char")).fingerprint == expected


def test_without_a_writable_cache_the_ids_are_in_memory(cached):
    (cached.parent / "cache").write_text("a file where the cache should be")
    assert len({open_corpus(spec(cached, "char")).fingerprint for _ in range(2)}) == 1


# Byte pairs


def test_byte_pairs_are_a_function_of_the_text_and_the_size(tmp_path):
    """Threads and hash seeds of other processes change nothing."""
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 4, encoding="utf-8")
    code = (
        "from lmzoo.data.corpus import open_corpus;"
        f"c = open_corpus({spec(path, 'bpe', vocab=330)!r});"
        "print(c.fingerprint, c.vocabulary.json.encode().hex())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "2", "RAYON_NUM_THREADS": "2"}
    answer = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    corpus = open_corpus(spec(path, "bpe", vocab=330))
    assert answer.split() == [corpus.fingerprint, corpus.vocabulary.json.encode().hex()]


def test_byte_pairs_of_a_text_without_blanks_take_no_quadratic_time():
    text = "a" * 20_000
    made = learned("bpe", text)
    assert max(map(len, made.tokens)) <= 1000
    assert made.decode(made.read(text.encode()).tolist()) == text


def test_byte_pairs_have_the_given_vocabulary_size(file):
    assert open_corpus(spec(file, "bpe", vocab=280)).task.vocab == 280
    with raises_user_error("vocab=259", "260"):
        open_corpus(spec(file, "bpe", vocab=259))


def test_a_missing_package_says_what_to_install(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with raises_user_error("tokenizers", "pip install tokenizers"):
        open_corpus(spec(file, "bpe"))
    open_corpus(spec(file, "word"))


@cases("data/cases.toml", "excluded", "fields, parts")
def test_fields_that_exclude_each_other_are_refused(fields, parts):
    with raises_user_error(*parts):
        open_corpus(spec("text.txt", **fields))


def test_texts_by_character_keep_their_identity():
    assert to_dict(StreamFileConfig(path="a.txt")) == {
        "path": "a.txt", "block": 64, "stride": 0, "blocks": 0,
    }  # fmt: skip
