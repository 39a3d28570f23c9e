"""Vocabularies of contiguous texts: nothing is lost, stretches and the cache change nothing."""

import os
import subprocess
import sys

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


def line(i):
    animal = ("cat", "dog", "bird")[i % 3]
    # Every second line begins with a blank.
    blank = " " * (i % 2)
    return f"the {animal} sees {i % 7} mäuse 日本 now.\n{blank}"


TEXT = "".join(map(line, range(300)))
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
    text = TEXT
    if unit == "word":
        # Blanks at the beginning of a line are no words.
        text = TEXT.replace("\n ", "\n")
    assert min(ids) > UNKNOWN
    assert made.decode(ids) == text
    assert made.encode(made.split(TEXT)) == ids


@every_unit
def test_a_new_character_is_unknown_or_has_bytes(unit):
    made = learned(unit)
    new = "the ☃"
    ids = made.read(new.encode()).tolist()
    assert ids == made.encode(made.split(new))
    assert (ids[-1] == UNKNOWN) == (unit in ("char", "word"))


@every_unit
@pytest.mark.parametrize("stretch", [9, 64, 1000])
def test_stretches_have_the_ids_of_the_whole_text(unit, stretch, monkeypatch):
    text = TEXT.replace(" sees", "     sees")  # blanks that one byte pair joins
    made = learned(unit, text, 320)
    whole = made.read(text.encode()).tolist()
    monkeypatch.setattr(tokenisers, "STRETCH", stretch)
    stretches = list(cut_stretches(memoryview(text.encode()), at_blanks=made.at_blanks))
    assert len(stretches) > 9
    ids = []
    for part in stretches:
        ids += made.read(part).tolist()
    assert ids == whole
    # Byte pairs are learned from the text as it is.
    if unit != "bpe":
        texts = map(bytes.decode, stretches)
        assert VOCABULARIES[unit].learn(texts) == made


@quick
@given(st.text(st.sampled_from("ab é日\n\t "), max_size=90), st.integers(4, 30), st.booleans())
def test_stretches_are_the_text_and_cut_no_word(text, size, at_blanks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenisers, "STRETCH", size)
        stretches = list(cut_stretches(memoryview(text.encode()), at_blanks=at_blanks))
    parts = list(map(bytes.decode, stretches))
    assert "".join(parts) == text
    if at_blanks:
        # A word that is cut would be two.
        assert " ".join(parts).split() == text.split()


@every_unit
def test_bits_and_words_are_those_of_the_raw_text_for_every_unit(file, unit):
    corpus = open_corpus(spec(file, unit))
    begin = int(0.95 * len(TEXT))
    if unit == "word":  # the word that the cut divides belongs to the test split
        while not TEXT[begin - 1].isspace():
            begin -= 1
    test = TEXT[begin:]
    size = TextSize(len(test), len(test.encode()), len(test.split()) + test.count("\n"))
    ids = corpus.test.tokens[corpus.test.scored].tolist()
    counts = {"char": size.characters, "byte": size.bytes, "word": size.words}
    assert corpus.test_size == size
    # How many byte pairs a text has depends on what was learned.
    assert corpus.test.num_scored == len(ids) == counts.get(unit, len(ids))
    assert corpus.vocabulary.decode(ids).split() == test.split()
    assert corpus.train.tokens[:, 0].eq(START).all()


def test_rare_words_are_unknown_in_training_only_if_held_out_words_are(file):
    words = " ".join(f"r{i}" for i in range(200))
    text = f"{words}\n{TEXT}"
    file.write_text(text, encoding="utf-8")
    known = open_corpus(spec(file, "word"))
    assert not known.train.stream.eq(UNKNOWN).any()
    # The end of the text is held out.
    file.write_text(text + "Ω " * 40, encoding="utf-8")
    corpus = open_corpus(spec(file, "word"))
    replaced = int(corpus.train.stream.eq(UNKNOWN).sum())
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
    for vocab in (280, 290):
        corpus = open_corpus(spec(cached, "bpe", vocab=vocab))
        assert corpus.task.vocab == vocab


def cut_off(data):
    return data[:-3]


def zeros(data):
    """Return the file as the disk leaves it if its second half was not written."""
    half = len(data) // 2
    return data[:half] + bytes(len(data) - half)


def flip(data, place):
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def flip_in_the_middle(data):
    return flip(data, len(data) // 2)


def flip_in_the_sizes(data):
    return flip(data, data.index(b'"sizes": [') + 11)


def empty_list(data):
    return b"[]"


DAMAGES = [cut_off, zeros, flip_in_the_middle, flip_in_the_sizes, empty_list]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_encoded_again(cached, damage, monkeypatch):
    expected = fingerprint(cached)
    (path,) = (cached.parent / "cache" / "tokens").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert fingerprint(cached) == expected
    # It was written again.
    forbid_encoding(monkeypatch)
    assert fingerprint(cached) == expected


def fingerprint(file):
    return open_corpus(spec(file, "char")).fingerprint


def test_without_a_writable_cache_the_ids_are_in_memory(cached):
    (cached.parent / "cache").write_text("a file where the cache should be")
    assert fingerprint(cached) == fingerprint(cached)


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
    environment = os.environ | {"PYTHONHASHSEED": "2", "RAYON_NUM_THREADS": "2"}
    answer = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    fingerprint, vocabulary = answer.split()
    corpus = open_corpus(spec(path, "bpe", vocab=330))
    assert fingerprint == corpus.fingerprint
    assert bytes.fromhex(vocabulary).decode() == corpus.vocabulary.json


def test_byte_pairs_of_a_text_without_blanks_take_no_quadratic_time():
    text = "a" * 20_000
    made = learned("bpe", text)
    ids = made.read(text.encode()).tolist()
    assert max(map(len, made.tokens)) <= 1000
    assert made.decode(ids) == text


def test_byte_pairs_need_room_for_the_bytes(file):
    # 256 bytes and four special tokens.
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
    fields = to_dict(StreamFileConfig(path="a.txt"))
    # No field that later versions have added.
    assert fields == {"path": "a.txt", "block": 64, "stride": 0, "blocks": 0}
