"""The user's file: what is read is counted, what is not read is said, or it is refused."""

import bz2
import gzip
import io
import itertools
import os
import subprocess
import sys
import zipfile
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmzoo.base.errors import UserError
from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data import files as files_module
from lmzoo.data.corpus import corpus_config, describe_data, open_corpus
from lmzoo.data.files import Reading, read_bytes
from lmzoo.data.splits import deal
from lmzoo.data.vocabulary import RESERVED, SPECIALS
from tests.cases import cases
from tests.cases import rows as table_rows
from tests.data.corpus_parts import decoded, parts_of
from tests.tiny import quick
from tests.user_errors import raises_user_error

ANIMALS = ("cat", "dog", "cow", "hen")
VERBS = ("runs", "naps", "eats", "sits")
LINES = [f"the {animal} {verb}" for animal, verb in itertools.product(ANIMALS, VERBS)]
TEXT = "\n".join(LINES * 3) + "\n"
RAW = TEXT.encode()
READERS = (
    {"name": "text", "length": 9},
    {"name": "text", "length": 9, "unit": "char"},
    {"name": "pairs", "length": 9},
    {"name": "fasta", "length": 9},
    {"name": "stream", "block": 4},
    {"name": "stream", "block": 4, "unit": "word"},
    {"name": "stream", "block": 4, "unit": "byte"},
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "own.txt"


def load(path, data, **spec):
    if isinstance(data, str):
        data = data.encode()
    path.write_bytes(data)
    return open_corpus(corpus_config({"name": "text", "path": str(path), **spec}))


def block(corpus):
    return "\n".join(describe_data(corpus))


# Words that are spelled like special tokens


LINE_KINDS = {
    "text": {},
    "characters": {"unit": "char"},
    "stream": {"name": "stream", "unit": "word", "block": 3},
    "stream of characters": {"name": "stream", "block": 3},
    "pairs": {"name": "pairs"},
}
SPELLED = pytest.mark.parametrize("word", [*RESERVED, "<end>'", "<pad>''"])
EACH_KIND = pytest.mark.parametrize("kind", LINE_KINDS)


def text_with(word, kind):
    """Return lines of many words, in which one is given."""
    rows = [f"{word} {word} a"] * 20
    for i in range(60):
        # Rows of different lengths, most of them different.
        rows.append("a " * (i % 7 + 3) + "b " * (i % 3 + 2) + f"{word} c")
    end = "\n"
    if kind == "pairs":
        end = "\tx y\n"
    return end.join(rows) + end


@SPELLED
@EACH_KIND
def test_a_word_that_is_spelled_like_a_special_token_has_the_ids_of_another(path, word, kind):
    # The letters of a word of z's would be one character.
    other = word
    if "char" not in kind:
        other = "z" * len(word)
    plain = load(path, text_with(other, kind), **LINE_KINDS[kind])
    corpus = load(path, text_with(word, kind), **LINE_KINDS[kind])
    for part, expected in zip(parts_of(corpus), parts_of(plain), strict=True):
        assert part.ids.equal(expected.ids)


@SPELLED
@EACH_KIND
def test_a_word_that_is_spelled_like_a_special_token_is_encoded_and_decoded(path, word, kind):
    corpus = load(path, text_with(word, kind), **LINE_KINDS[kind])
    vocabulary = corpus.source_vocabulary or corpus.vocabulary
    text = f"a {word}"
    split = ["a", word]
    if "char" in kind:
        split = list(text)
    ids = vocabulary.encode(split)
    assert vocabulary.split(text) == split
    assert vocabulary.decode(ids) == text


ANOTHER_TARGET = "test pairs have a source that stands in training, with another target"


def test_a_source_with_another_target_in_training_is_counted(path):
    rows = [f"source {i // 2}\ttarget {i}" for i in range(200)]
    corpus = load(path, "\n".join(rows), name="pairs")
    *_, last = corpus.facts.notes
    assert last.endswith(ANOTHER_TARGET)


def test_a_source_with_one_target_is_not_noted(path):
    rows = [f"source {i}\ttarget {i}" for i in range(100)]
    corpus = load(path, "\n".join(rows), name="pairs")
    assert ANOTHER_TARGET not in "".join(corpus.facts.notes)


# Encodings and containers


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/b.txt", data)
    return file.getvalue()


MARK = b"\xef\xbb\xbf"
WITH_CR = RAW.replace(b"\n", b"\r")
SAME = {
    "mark": MARK + RAW,
    "gzip": gzip.compress(RAW),
    "gzip in two parts": gzip.compress(RAW[:70]) + gzip.compress(RAW[70:]),
    "gzip with a mark": gzip.compress(MARK + RAW),
}
"""Bytes of the same corpus, about which nothing is said."""
NOTED = {
    "CR": (WITH_CR, "carriage return"),
    "CR and LF": (WITH_CR[:300] + RAW[300:], "carriage return"),
    "CRLF": (RAW.replace(b"\n", b"\r\n"), "carriage return"),
    "two marks": (MARK + RAW[:99] + MARK + RAW[99:], "1 byte order marks"),
}
"""Bytes of the same corpus, and the note about them."""
KINDS = [{}, {"name": "stream", "block": 4}]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["text", "stream"])


def assert_same_corpus(path, data, kind):
    """Assert that these bytes are the corpus of the plain text; return the notes about them."""
    expected = load(path, TEXT, **kind)
    found = load(path, data, **kind)
    assert found.fingerprint == expected.fingerprint
    return found.facts.notes


@each_kind
@pytest.mark.parametrize("writing", SAME)
def test_every_writing_of_a_text_is_the_same_corpus(path, writing, kind):
    assert not assert_same_corpus(path, SAME[writing], kind)


@each_kind
@pytest.mark.parametrize("writing", NOTED)
def test_a_writing_that_loses_signs_is_the_same_corpus_and_is_said(path, writing, kind):
    data, note = NOTED[writing]
    notes = assert_same_corpus(path, data, kind)
    assert note in "".join(notes)


def test_blank_lines_are_no_lines_of_a_text(path):
    data = RAW.replace(b"\n", b"\n\n")
    # A stream would have their ends.
    assert not assert_same_corpus(path, data, {})


@pytest.mark.parametrize("data", ['{"text": "a cat"}\n' * 40, '[{"a": 1},\n' + '{"a": 2}\n' * 40])
def test_objects_of_json_are_said_to_be_read_as_text(path, data):
    assert "jq -r .text" in block(load(path, data))


def test_a_pipe_without_a_writer_ends(tmp_path):
    pipe = tmp_path / "pipe"
    # Reading it would wait for a writer for ever.
    os.mkfifo(pipe)
    with raises_user_error(pipe, "empty"):
        open_corpus(corpus_config(f"text:{pipe}"))


def test_what_a_folder_leaves_out_is_said(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / ".b.txt").write_text(TEXT)
    facts = open_corpus(corpus_config(f"text:{tmp_path}")).facts
    assert "left out: 3 hidden files, links and pipes, such as" in "".join(facts.notes)
    assert sum(facts.splits) == len(LINES) * 3


def test_a_plain_file_with_the_name_of_a_compressed_one_is_refused(path):
    with raises_user_error("not compressed", "the cat"):
        load(path.with_suffix(".txt.gz"), TEXT)


# Names, because a test must have the same name in every process: a gzip archive holds its time.
NO_TEXT = {
    "UTF-16LE without a mark": (TEXT.encode("utf-16-le"), "line 1: a NUL byte at offset 1 "),
    "a NUL": (RAW + b"a\0b\n", f"line 49: a NUL byte at offset {len(TEXT) + 1} "),
    "Latin-1": (RAW + b"na\xefve", f"line 49: byte ef at offset {len(RAW) + 2} is not UTF-8"),
    "mark in a character": (RAW + b"na\xc3\xef\xbb\xbf\xafve", "line 49: byte c3"),
    "gzip cut off": (gzip.compress(RAW)[:-9], "broken gzip"),
    "gzip in gzip": (gzip.compress(gzip.compress(RAW)), "compressed twice"),
    "bzip2": (bz2.compress(RAW), "BZh"),
    "zip": (zipped(TEXT), "PK"),
    "pointer of LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "git-lfs"),
}
"""Bytes that are refused, and a part of the line that says why."""


@pytest.mark.parametrize("kind", NO_TEXT)
def test_what_is_no_text_is_refused_in_one_line(path, kind):
    data, part = NO_TEXT[kind]
    with raises_user_error(path, part):
        load(path, data)


BY_BYTE = {"name": "stream", "unit": "byte", "block": 4}


@pytest.mark.parametrize("kind", ["bzip2", "zip", "gzip in gzip"])
def test_the_bytes_of_an_archive_are_no_tokens(path, kind):
    data, part = NO_TEXT[kind]
    with raises_user_error(path, part):
        load(path, data, **BY_BYTE)


def test_bytes_of_any_encoding_are_tokens(path):
    latin, _ = NO_TEXT["Latin-1"]
    facts = load(path, latin, **BY_BYTE).facts
    assert facts.tokens == len(latin)


@pytest.fixture
def many_bytes_a_character(monkeypatch, request):
    """Return a text in UTF-8 that is read in blocks of this size."""
    monkeypatch.setattr(files_module, "BLOCK", request.param)
    return ("aé日😀\n" * 40).encode()


in_blocks = pytest.mark.parametrize(
    "many_bytes_a_character", [7, files_module.BLOCK], indirect=True
)


@in_blocks
def test_a_character_may_be_in_two_blocks(path, many_bytes_a_character):
    assert load(path, many_bytes_a_character).facts.notes == ()


@in_blocks
@pytest.mark.parametrize("place", [0, 3, 205, 479])
def test_the_place_of_a_wrong_byte_is_right(path, place, many_bytes_a_character):
    raw = many_bytes_a_character
    line = raw.count(b"\n", 0, place) + 1
    with raises_user_error(f"line {line}:", "not UTF-8"):
        load(path, raw[:place] + b"\xff" + raw[place:])


EACH_READER = pytest.mark.parametrize("spec", READERS, ids=str)


@EACH_READER
@cases("data/cases.toml", "no_files", "name, said")
def test_a_path_that_is_no_file_is_refused(spec, name, said):
    with raises_user_error(*said):
        open_corpus(corpus_config(spec | {"path": name}))


@EACH_READER
def test_a_reader_without_a_path_shows_its_form(spec):
    with raises_user_error("needs a file", f"{spec['name']}:PATH"):
        open_corpus(corpus_config(spec | {"path": ""}))


@EACH_READER
def test_a_path_that_cannot_be_read_is_named(tmp_path, spec):
    nowhere = tmp_path / "none"
    with raises_user_error(nowhere, "does not exist"):
        open_corpus(corpus_config(spec | {"path": str(nowhere)}))
    with raises_user_error(tmp_path, "folder"):
        open_corpus(corpus_config(spec | {"path": str(tmp_path)}))


@EACH_READER
@pytest.mark.parametrize("content", [b"", b" \n\n", gzip.compress(b"", mtime=0)], ids=range(3))
def test_an_empty_file_is_refused(path, spec, content):
    with raises_user_error(path, "empty"):
        load(path, content, **spec)


of_words = pytest.mark.parametrize(
    "spec", [{}, {"name": "stream", "unit": "word", "block": 4}], ids=str
)


@of_words
def test_a_vocabulary_without_room_for_a_word_is_refused(path, spec):
    with raises_user_error("vocab=4", "special tokens only", "at least 5"):
        load(path, TEXT, vocab=4, **spec)


@of_words
def test_a_vocabulary_may_have_one_word(path, spec):
    corpus = load(path, TEXT, vocab=5, **spec)
    assert len(corpus.vocabulary) == 5


# FASTA


PROTEINS = [f"MKVL{letter}" for letter in "ACDEFGHIKL"]


@pytest.fixture
def records():
    """Return a record of FASTA for each protein."""
    return "".join(f">{i}\n{protein}\n" for i, protein in enumerate(PROTEINS))


def test_fasta_records_may_span_several_lines(path, records):
    wrapped = records.replace("MKVL", "MK\n\nvl\n")
    expected = load(path, records, name="fasta")
    found = load(path, wrapped, name="fasta")
    assert found.fingerprint == expected.fingerprint


def test_records_of_fasta_are_words_of_residues(path, records):
    corpus = load(path, records, name="fasta")
    assert set(decoded(corpus, corpus.train)) < set(PROTEINS)
    assert corpus.test_size.words is None
    assert corpus.name == "fasta"
    assert corpus.unit == "residue"


@cases("data/cases.toml", "fasta", "text, parts")
def test_an_invalid_fasta_line_is_located(path, text, parts):
    with raises_user_error(path, *parts):
        load(path, text, name="fasta")


# What is lost


@pytest.mark.parametrize(("lost", "warns"), [(4, False), (399, True)])
def test_cut_lines_are_said_with_their_share(path, lost, warns):
    words = 11 + lost
    text = TEXT + "w " * words + "\n"
    corpus = load(path, text, length=12)
    facts = corpus.facts
    assert facts.tokens == len(text.split())
    assert facts.cut == 1
    assert facts.lost == lost
    assert facts.longest == words
    assert f"set corpus.length={words + 2}" in block(corpus)
    # A few of many words are only counted.
    assert ("1 of" in "".join(facts.warnings)) == warns
    assert ("WARNING: 1 of" in block(corpus)) == warns


def test_no_token_is_lost_at_the_length_of_the_longest_line(path):
    text = TEXT + "w " * 15 + "\n"
    longest = load(path, text, length=12).facts.longest
    whole = load(path, text, length=longest + 2)
    assert whole.facts.lost == 0
    assert whole.test.lengths.max() <= whole.task.length


WORDS_A_LINE = 50
LINES_OF_WORDS = {"text": "{}\n", "pairs": "{}\tx\n"}


def different_words(name):
    """Return 41,000 different words in lines of a text or in sources of pairs."""
    lines = []
    for first in range(0, 41_000, WORDS_A_LINE):
        words = [f"w{i}" for i in range(first, first + WORDS_A_LINE)]
        lines.append(LINES_OF_WORDS[name].format(" ".join(words)))
    return "".join(lines)


@pytest.mark.parametrize("name", LINES_OF_WORDS)
def test_a_vocabulary_has_no_limit(path, name):
    corpus = load(path, different_words(name), name=name, train_unk=False)
    vocabulary = corpus.vocabulary
    ids = corpus.train.ids
    if name == "pairs":
        vocabulary = corpus.source_vocabulary
        ids, _ = corpus.train.sources
    lines, *_ = corpus.facts.splits
    assert len(vocabulary) == 4 + WORDS_A_LINE * lines
    assert not ids.eq(UNKNOWN).any()


@pytest.mark.parametrize("name", LINES_OF_WORDS)
def test_a_given_limit_of_the_vocabulary_is_kept_and_said(path, name):
    corpus = load(path, different_words(name), name=name, vocab=104, train_unk=False)
    vocabulary = corpus.source_vocabulary or corpus.vocabulary
    lines, *_ = corpus.facts.splits
    left_out = WORDS_A_LINE * lines - 100
    # Four are special.
    assert len(vocabulary) == 104
    assert f"{left_out:,} different words" in block(corpus)


CHINESE = [f"我爱自然语言处理和机器学习第{i}句" for i in range(100)]
BURMESE = ["\u1000\u103b\u103d\u1014\u103a" * 5] * 40
BY_PAIRS = {"unit": "bpe", "vocab": 300, "length": 99}


@pytest.mark.parametrize("lines", [CHINESE, BURMESE], ids=["Chinese", "Burmese"])
def test_a_text_without_blanks_between_words_is_said(path, lines):
    corpus = load(path, "\n".join(lines))
    assert "the text has no blanks between words" in block(corpus)


def test_unread_words_are_a_warning_with_the_way_out(path):
    corpus = load(path, "\n".join(CHINESE))
    way = "50.0 % of the test tokens are <unk>, which hides them; set corpus.unit=bpe or"
    assert f"\nWARNING: {way}" in block(corpus)
    warnings = corpus.facts.as_json()["warnings"]
    assert way in "".join(warnings), "in the answer"


def test_byte_pairs_of_a_text_without_blanks_are_no_warning(path):
    corpus = load(path, "\n".join(CHINESE), **BY_PAIRS)
    assert "WARNING" not in block(corpus)


@pytest.fixture(params=["text", "pairs"])
def by_pairs(request, path):
    """Return the corpus of byte pairs of lines or of pairs, and its texts."""
    texts = [f"über {line}" for line in CHINESE]
    lines = texts
    if request.param == "pairs":
        lines = [f"{text}\tder {i}. Satz" for i, text in enumerate(texts)]
        texts = [line.partition("\t")[2] for line in lines]
    corpus = load(path, "\n".join(lines), name=request.param, **BY_PAIRS)
    return corpus, texts


def test_byte_pairs_of_lines_decode_to_them(by_pairs):
    corpus, texts = by_pairs
    for part in parts_of(corpus):
        assert part.unknown_share == 0
        assert set(decoded(corpus, part)) <= set(texts)


def test_byte_pairs_are_a_vocabulary_of_the_given_size(by_pairs):
    corpus, _ = by_pairs
    assert corpus.unit == "subword"
    assert len(corpus.vocabulary) <= 300


def test_a_text_of_byte_pairs_has_the_characters_of_its_lines(by_pairs):
    corpus, _ = by_pairs
    text = "\n".join(decoded(corpus, corpus.test)) + "\n"
    assert corpus.test_size.characters == len(text)


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_byte_pairs_exclude_a_smallest_count(path, name):
    with raises_user_error("min_count=2"):
        load(path, "über\tSatz\n" * 9, name=name, min_count=2, **BY_PAIRS)


# Splits


NUMBERED = [f"Line {i} here" for i in range(20)]


def test_the_lines_of_a_text_are_dealt_by_their_hash(path):
    corpus = load(path, "\n".join(NUMBERED), train_unk=False)
    *places, _ = deal(NUMBERED)
    assert list(map(len, places)) == [16, 2, 2]
    for part, rows in zip(parts_of(corpus), places, strict=True):
        words = [NUMBERED[i].split() for i in rows]
        # Numbers that training does not have are unknown.
        ids = map(corpus.vocabulary.encode, words)
        assert decoded(corpus, part) == list(map(corpus.vocabulary.decode, ids))


def test_the_words_of_a_text_end_with_end(path):
    corpus = load(path, "\n".join(NUMBERED), train_unk=False)
    assert corpus.unit == "word"
    assert corpus.task.length == 64
    assert corpus.train.tokens[:, 4].eq(END).all()
    assert corpus.source.startswith("own.txt")


def test_the_characters_of_cut_lines_have_no_end(path):
    cut = load(path, "\n".join(NUMBERED), unit="char", lower=True, length=6)
    assert decoded(cut, cut.train) == ["line "] * 16
    assert not cut.train.tokens.eq(END).any()


KEYS = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=10, max_size=200)


@quick
@given(KEYS)
@example(["a", "b"] * 20)
def test_lines_are_dealt_8_1_1(keys):
    train, valid, test, _ = deal(keys)
    dealt = itertools.chain(train, valid, test)
    assert sorted(dealt) == list(range(len(keys)))
    room = len(keys) // 10
    assert 0 < len(valid) <= room
    assert 0 < len(test) <= room


@quick
@given(KEYS)
@example(["a", "b"] * 20)
def test_equal_lines_are_dealt_together_if_there_are_enough_different_ones(keys):
    train, valid, test, together = deal(keys)
    if together:
        trained = {keys[i] for i in train}
        for i in itertools.chain(valid, test):
            assert keys[i] not in trained
    else:
        assert len(valid) == len(test) == len(keys) // 10


def test_test_lines_of_the_training_split_are_a_warning(path):
    corpus = load(path, (TEXT + "\n") * 8, name="stream", block=4)
    assert "also stand in training" in "".join(corpus.facts.warnings)


def test_equal_lines_of_a_text_are_no_warning(path):
    assert load(path, TEXT * 8).facts.warnings == []


def test_lines_that_are_equal_once_cut_stand_in_training_too(path):
    text = "".join(f"a a a a a a a a a {i}\n" for i in range(40))
    facts = load(path, text, length=5).facts
    # All lines of the test split.
    assert facts.seen == 4


def test_two_spellings_of_a_line_are_in_the_same_split(path):
    # One letter, and a letter with an accent that follows it.
    spellings = ("\xe9", "e\u0301")
    lines = [f"{letter}{i}" for i, letter in itertools.product(range(40), spellings)]
    corpus = load(path, "\n".join(lines), unit="char")
    seen = set()
    for part in parts_of(corpus):
        texts = decoded(corpus, part)
        numbers = {text.strip("\xe9e\u0301") for text in texts}
        assert seen.isdisjoint(numbers)
        seen |= numbers


MEMORY = """
import resource, sys
from lmzoo.data.corpus import describe_data, open_corpus
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
open_corpus("stream:small.txt")
before = peak()
corpus = open_corpus({"name": "stream", "path": "large.txt", "unit": sys.argv[1]})
describe_data(corpus), corpus.fingerprint, corpus.train.for_epoch(1)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["char", "word"])
def test_a_text_needs_little_more_memory_than_itself(tmp_path, unit, monkeypatch):
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "small.txt").write_text(TEXT * 8)
    size = (tmp_path / "large.txt").write_text(f"{TEXT}{TEXT[::-1]}\n" * 40_000)
    command = [sys.executable, "-c", MEMORY, unit]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    needed = int(done.stdout)
    assert needed < 5 * size, done.stderr
    assert "reading corpus stream" in done.stderr


# Any bytes

WORDS = b"a/b c/ /\x0c/<pad>/e\xcc\x81/\xc3\xa9/\xc2\x85/c/;/-*".split(b"/")
ENDS = (b"\n", b"\n", b"\r\n", b"\r", b"\n \n")
words = st.lists(st.sampled_from(WORDS), max_size=6).map(b"".join)
residues = st.text("ACDxyz*-. ", min_size=1).map(str.encode)
in_row = words.map(b"a b%b".__mod__)
pair = st.tuples(words, words).map(lambda both: b"a%b\tb%b" % both)
record = st.tuples(words, residues).map(lambda both: b">%b\n A%b" % both)
ROWS = {
    "text": in_row,
    "stream": in_row,
    "pairs": pair,
    "fasta": st.one_of(record, st.just(b";c\n#")),
}
PACKED = (bytes, gzip.compress)


def insert(whole, inserted, place):
    return whole[:place] + inserted + whole[place:]


def files(rows):
    """Rows of a reader with line ends, into which some bytes were inserted at any place."""
    ended = st.tuples(rows, st.sampled_from(ENDS)).map(b"".join)
    whole = st.lists(ended, min_size=40, max_size=60).map(b"".join)
    nothing = st.just(b"")
    signs = st.sampled_from([MARK, b"\0", b"\n"])
    inserted = st.one_of(nothing, signs, st.binary(max_size=3))
    damaged = st.builds(insert, whole, inserted, st.integers(0, 400))
    # Three of four files are nearly right.
    return st.one_of(damaged, damaged, damaged, st.binary(max_size=200))


@pytest.mark.parametrize("spec", READERS, ids=lambda spec: " ".join(map(str, spec.values())))
def test_every_byte_is_read_or_said_or_the_file_is_refused(path, spec):
    read = []

    @settings(quick, max_examples=25)
    @given(files(ROWS[spec["name"]]), st.sampled_from(PACKED))
    def check(data, pack):
        path.write_bytes(pack(data))
        corpus = None
        refusal = ""
        try:
            corpus = open_corpus(corpus_config(spec | {"path": str(path)}))
        except UserError as error:
            refusal = str(error)
        assert "\n" not in refusal
        if corpus is not None:
            read.append(data)
            assert_accounts_for(data, corpus, spec)

    check()
    assert len(read) > 3, "nearly all files were refused"


def assert_accounts_for(data, corpus, spec):
    """Assert that the facts about a corpus account for every byte of its file."""
    facts = corpus.facts
    assert all(" " in line for line in describe_data(corpus))
    if spec.get("unit") == "byte":
        assert facts.tokens == len(data.removeprefix(MARK))
        return
    assert_characters_are_in_the_vocabulary(data.decode(), corpus)
    text = data.decode().replace("\ufeff", "")
    kept = text.replace("\r\n", "\n").replace("\r", "\n")
    if spec["name"] == "stream":
        tokens = len(kept)
        if spec.get("unit") == "word":
            tokens = len(kept.split()) + kept.count("\n")
        assert facts.tokens == tokens
        return
    lines = kept.removesuffix("\n").split("\n")
    full = [line for line in lines if line.strip()]
    assert facts.blank == len(lines) - len(full)
    assert facts.splits == (len(corpus.train), len(corpus.valid), len(corpus.test))
    if spec["name"] == "fasta":
        assert_records_are_counted(full, facts)
    else:
        # Characters, or words between blanks.
        measure = len
        if spec.get("unit") != "char":
            measure = words_in
        assert sum(facts.splits) == len(full)
        assert facts.tokens == sum(map(measure, full))
    assert held_tokens(corpus) == facts.tokens - facts.lost


def words_in(line):
    return len(line.split())


def assert_characters_are_in_the_vocabulary(text, corpus):
    notes = "".join(corpus.facts.notes)
    kept = text.replace("\ufeff", "")
    # A mark at the beginning is no character; others are left out, which is said.
    if kept != text.removeprefix("\ufeff"):
        assert "U+FEFF" in notes
    assert ("\r" in kept) == ("carriage" in notes)
    characters = set(kept) | {"\n", "'"}
    if corpus.name == "fasta":
        characters |= set(kept.upper())
    tokens = corpus.vocabulary.tokens[len(SPECIALS) :]
    assert set("".join(tokens)) <= characters


def assert_records_are_counted(lines, facts):
    first = Counter()
    residues = 0
    for line in lines:
        letters = "".join(line.split())
        first[letters[0]] += 1
        if letters[0] not in ">;#":
            residues += len(letters)
    assert sum(facts.splits) == first[">"]
    assert facts.tokens == residues
    has_comments = first[";"] + first["#"] > 0
    assert ("comment" in "".join(facts.notes)) == has_comments


def held_tokens(corpus):
    """Return the tokens in all splits, without <start>, <end> and padding."""
    held = 0
    for part in parts_of(corpus):
        held += count_words(part.ids)
        if part.sources:
            source, _ = part.sources
            held += count_words(source)
    return held


def count_words(ids):
    """Return how many ids are neither padding nor <start> nor <end>."""
    is_word = (ids > START) & (ids != END)
    return int(is_word.sum())


def test_a_gzip_file_that_unpacks_to_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "small.gz"
    path.write_bytes(gzip.compress(b"a b c\n" * 10_000))
    monkeypatch.setattr("lmzoo.base.memory.machine_bytes", lambda: 100_000)
    with pytest.raises(UserError, match=r"the content of .* needs at least"):
        read_bytes(path)


LOOKS = table_rows("data/looks.toml", "looks")


def notes_about(path, text):
    path.write_bytes(text.encode())
    reading = Reading()
    read_bytes(path, reading)
    return reading.notes


@pytest.mark.parametrize("kind", LOOKS)
def test_what_looks_like_text_and_is_not_is_said(kind, path):
    text, said = LOOKS[kind]
    assert said in " ".join(notes_about(path, text))


def test_signs_of_a_text_are_not_noted(path):
    assert notes_about(path, "C++ 1+1=2 A+B-C x~{a} R&D; well-known") == []


def test_what_takes_long_to_read_is_said(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"a sentence of number {i}\n" for i in range(2000)))
    monkeypatch.setattr("lmzoo.base.streams.PATIENCE", 1e-3)
    open_corpus(f"text:{text}")
    assert "reading corpus text ...\n" in capsys.readouterr().err
