"""The user's file: what is read is counted, what is not read is said, or it is refused."""

import bz2
import gzip
import io
import os
import subprocess
import sys
import zipfile

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
from tests.tiny import quick
from tests.user_errors import raises_user_error

ANIMALS, VERBS = ("cat", "dog", "cow", "hen"), ("runs", "naps", "eats", "sits")
LINES = [f"the {animal} {verb}" for animal in ANIMALS for verb in VERBS]
TEXT = "".join(f"{line}\n" for line in LINES * 3)
RAW = TEXT.encode()
PARTS = ("train", "valid", "test")
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
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return open_corpus(corpus_config({"name": "text", "path": str(path), **spec}))


def block(corpus):
    return "\n".join(describe_data(corpus))


def decoded(corpus, part):
    return [corpus.vocabulary.decode(row) for row in part.tokens.tolist()]


# Words that are spelled like special tokens


KINDS = {
    "text": ({}, "\n"),
    "characters": ({"unit": "char"}, "\n"),
    "stream": ({"name": "stream", "unit": "word", "block": 3}, "\n"),
    "stream of characters": ({"name": "stream", "block": 3}, "\n"),
    "pairs": ({"name": "pairs"}, "\tx y\n"),
}


@pytest.mark.parametrize("word", [*RESERVED, "<end>'", "<pad>''"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_word_that_is_spelled_like_a_special_token_is_a_word(path, word, kind):
    spec, end = KINDS[kind]
    rows = [f"{'a ' * (i % 7 + 3)}{'b ' * (i % 3 + 2)}zz c" for i in range(60)] + ["zz zz a"] * 20
    text = "".join(row + end for row in rows)
    first, second = (
        load(path, text.replace("zz", name), **spec)
        for name in (word if "char" in kind else "z" * len(word), word)
    )
    same = [getattr(first, p).ids.tolist() == getattr(second, p).ids.tolist() for p in PARTS]
    assert all(same)
    words = second.source_vocabulary if kind == "pairs" else second.vocabulary
    split = [*f"a {word}"] if "char" in kind else ["a", word]
    assert words.split(f"a {word}") == split
    assert words.decode(words.encode(split)) == f"a {word}"


def test_a_source_with_another_target_in_training_is_counted(path):
    rows = [f"source {i // 2}\ttarget {i}" for i in range(200)]
    corpus = load(path, "\n".join(rows), name="pairs")
    assert corpus.facts.notes[-1].endswith(
        "test pairs have a source that stands in training, with another target"
    )
    alone = load(path, "\n".join(rows[::2]), name="pairs")
    assert not any("another target" in note for note in alone.facts.notes)


# Encodings and containers


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/b.txt", data)
    return file.getvalue()


SAME = {
    "mark": (b"\xef\xbb\xbf" + RAW, ""),
    "CR": (RAW.replace(b"\n", b"\r"), "carriage return"),
    "CR and LF": (RAW[:300].replace(b"\n", b"\r") + RAW[300:], "carriage return"),
    "CRLF": (RAW.replace(b"\n", b"\r\n"), "carriage return"),
    "two marks": ("\ufeff".join(["", TEXT[:99], TEXT[99:]]).encode(), "1 byte order marks"),
    "gzip": (gzip.compress(RAW), ""),
    "gzip in two parts": (gzip.compress(RAW[:70]) + gzip.compress(RAW[70:]), ""),
    "gzip with a mark": (gzip.compress(b"\xef\xbb\xbf" + RAW), ""),
    "blank lines": (RAW.replace(b"\n", b"\n\n"), ""),
}
"""Bytes of the same corpus, and the note about them."""


@pytest.mark.parametrize("kind", SAME)
def test_every_writing_of_a_text_is_the_same_corpus(path, kind):
    data, note = SAME[kind]
    for spec in ({}, {"name": "stream", "block": 4})[: 1 + (kind != "blank lines")]:
        expected, found = load(path, TEXT, **spec), load(path, data, **spec)
        assert found.fingerprint == expected.fingerprint
        assert bool(found.facts.notes) == bool(note)
        assert note in "".join(found.facts.notes)


@pytest.mark.parametrize("data", ['{"text": "a cat"}\n' * 40, '[{"a": 1},\n' + '{"a": 2}\n' * 40])
def test_objects_of_json_are_said_to_be_read_as_text(path, data):
    assert "jq -r .text" in block(load(path, data))


def test_a_pipe_without_a_writer_ends_and_what_a_folder_leaves_out_is_said(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with raises_user_error(tmp_path / "pipe", "empty"):
        open_corpus(corpus_config(f"text:{tmp_path / 'pipe'}"))
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
    with raises_user_error(str(path), part):
        load(path, data)


@pytest.mark.parametrize("kind", ["bzip2", "zip", "gzip in gzip"])
def test_the_bytes_of_an_archive_are_no_tokens(path, kind):
    by_byte = {"name": "stream", "unit": "byte", "block": 4}
    with raises_user_error(str(path), NO_TEXT[kind][1]):
        load(path, NO_TEXT[kind][0], **by_byte)
    latin = NO_TEXT["Latin-1"][0]
    assert load(path, latin, **by_byte).facts.tokens == len(latin)


@pytest.mark.parametrize("block", [7, files_module.BLOCK])
def test_the_place_of_a_wrong_byte_is_right(path, block, monkeypatch):
    monkeypatch.setattr(files_module, "BLOCK", block)
    text = "aé日😀\n" * 40
    assert load(path, text).facts.notes == ()
    raw = text.encode()
    for place in (0, 3, 205, len(raw) - 1):
        line = raw.count(b"\n", 0, place) + 1
        with raises_user_error(f"line {line}:", "not UTF-8"):
            load(path, raw[:place] + b"\xff" + raw[place:])


@pytest.mark.parametrize("spec", READERS, ids=str)
def test_an_unreadable_file_is_named_in_the_error(tmp_path, spec):
    for name, *said in (
        ("~no_such_account/a", "no such home folder"),
        ("a\0b", "NUL byte"),
        ("", "needs a file", f"{spec['name']}:PATH"),
        (str(tmp_path / "none"), str(tmp_path / "none"), "does not exist"),
        (str(tmp_path), str(tmp_path), "folder"),
    ):
        with raises_user_error(*said):
            open_corpus(corpus_config({**spec, "path": name}))
    for content in (b"", b" \n\n", gzip.compress(b"")):
        with raises_user_error(tmp_path / "empty", "empty"):
            load(tmp_path / "empty", content, **spec)


@pytest.mark.parametrize("spec", [{}, {"name": "stream", "unit": "word", "block": 4}])
def test_a_vocabulary_without_room_for_a_word_is_refused(path, spec):
    with raises_user_error("vocab=4", "special tokens only", "at least 5"):
        load(path, TEXT, vocab=4, **spec)
    assert len(load(path, TEXT, vocab=5, **spec).vocabulary) == 5


# FASTA


def test_fasta_records_may_span_several_lines(path):
    flat = "".join(f">{i}\nMKVL{letter}\n" for i, letter in enumerate("ACDEFGHIKL"))
    wrapped = "".join(f">{i}\nMK\n\nvl\n{letter}\n" for i, letter in enumerate("ACDEFGHIKL"))
    first, second = (load(path, text, name="fasta") for text in (flat, wrapped))
    assert first.fingerprint == second.fingerprint
    assert {*decoded(first, first.train)} < {f"MKVL{letter}" for letter in "ACDEFGHIKL"}
    assert first.test_size.words is None
    assert (first.name, first.unit) == ("fasta", "residue")


@cases("data/cases.toml", "fasta", "text, parts")
def test_an_invalid_fasta_line_is_located(path, text, parts):
    with raises_user_error(path, *parts):
        load(path, text, name="fasta")


# What is lost


@pytest.mark.parametrize(("long", "warns"), [(5, False), (400, True)])
def test_cut_lines_are_said_with_their_share(path, long, warns):
    text = TEXT + "w " * (10 + long) + "\n"
    corpus = load(path, text, length=12)
    facts = corpus.facts
    assert facts.tokens == len(text.split())
    assert (facts.cut, facts.lost, facts.longest) == (1, long - 1, 10 + long)
    assert f"set corpus.length={12 + long}" in block(corpus)
    assert any("1 of" in warning for warning in facts.warnings) == warns
    assert ("WARNING: 1 of" in block(corpus)) == warns


def test_no_token_is_lost_at_the_length_of_the_longest_line(path):
    text = TEXT + "w " * 15 + "\n"
    longest = load(path, text, length=12).facts.longest
    whole = load(path, text, length=longest + 2)
    assert whole.facts.lost == 0
    assert whole.test.lengths.max() <= whole.task.length


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_a_vocabulary_has_no_limit_but_a_given_one(path, name):
    words = [f"w{i}" for i in range(41_000)]
    line = "{}\n" if name == "text" else "{}\tx\n"
    text = "".join(line.format(" ".join(words[i : i + 50])) for i in range(0, len(words), 50))
    first = load(path, text, name=name, train_unk=False)
    vocabulary = first.source_vocabulary or first.vocabulary
    train = first.train.sources[0] if first.train.sources else first.train.ids
    assert len(vocabulary) == 4 + 50 * first.facts.splits[0]
    assert not (train == UNKNOWN).any()
    few = load(path, text, name=name, vocab=104, train_unk=False)
    assert len(few.source_vocabulary or few.vocabulary) == 104
    assert f"{50 * first.facts.splits[0] - 100:,} different words" in block(few)


CHINESE = [f"我爱自然语言处理和机器学习第{i}句" for i in range(100)]


BY_PAIRS = {"unit": "bpe", "vocab": 300, "length": 99}


def test_unread_words_are_a_warning_with_the_way_out(path):
    corpus = load(path, "\n".join(CHINESE))
    for text in (CHINESE, ["\u1000\u103b\u103d\u1014\u103a" * 5] * 40):  # Burmese
        assert "the text has no blanks between words" in block(load(path, "\n".join(text)))
    way = "50.0 % of the test tokens are <unk>, which hides them; set corpus.unit=bpe or"
    assert f"\nWARNING: {way}" in block(corpus)
    assert any(way in text for text in corpus.facts.as_json()["warnings"]), "in the answer"
    assert "WARNING" not in block(load(path, "\n".join(CHINESE), **BY_PAIRS))


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_byte_pairs_of_lines_are_learned_on_the_training_lines_and_decode_to_them(path, name):
    lines = [
        f"über {line}" + f"\tder {i}. Satz" * (name == "pairs") for i, line in enumerate(CHINESE)
    ]
    corpus = load(path, "\n".join(lines), name=name, **BY_PAIRS)
    shown = {line.rpartition("\t")[2] for line in lines}
    for part in (corpus.train, corpus.valid, corpus.test):
        assert part.unknown_share == 0
        assert {*decoded(corpus, part)} <= shown
    assert corpus.unit == "subword"
    assert len(corpus.vocabulary) <= 300
    assert corpus.test_size.characters == sum(len(t) + 1 for t in decoded(corpus, corpus.test))
    with raises_user_error("min_count=2"):
        load(path, "\n".join(lines), name=name, min_count=2, **BY_PAIRS)


# Splits


def test_the_lines_of_a_text_are_dealt_by_their_hash(path):
    lines = [f"Line {i} here" for i in range(20)]
    corpus = load(path, "\n".join(lines), train_unk=False)
    train, valid, test, _ = deal(lines)
    assert (len(train), len(valid), len(test)) == (16, 2, 2)
    assert decoded(corpus, corpus.train) == [lines[i] for i in train]
    for part, places in ((corpus.valid, valid), (corpus.test, test)):
        ids = [corpus.vocabulary.encode(lines[i].split()) for i in places]
        assert decoded(corpus, part) == [corpus.vocabulary.decode(row) for row in ids]
    assert (corpus.name, corpus.unit, corpus.task.length) == ("text", "word", 64)
    assert corpus.train.tokens[:, 4].eq(END).all()
    assert corpus.source.startswith("own.txt")
    cut = load(path, "\n".join(lines), unit="char", lower=True, length=6)
    assert decoded(cut, cut.train) == ["line "] * 16
    assert not cut.train.tokens.eq(END).any()  # every line was cut


@quick
@given(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=10, max_size=200))
@example(["a", "b"] * 20)
def test_lines_are_dealt_8_1_1_and_equal_ones_together(keys):
    *parts, together = deal(keys)
    assert sorted(i for part in parts for i in part) == list(range(len(keys)))
    room = len(keys) // 10
    assert 0 < len(parts[1]) <= room
    assert 0 < len(parts[2]) <= room
    shared = {keys[i] for i in parts[0]} & {keys[i] for i in (*parts[1], *parts[2])}
    assert together <= (not shared)
    if not together:  # too few different keys: dealt one by one
        assert len(parts[1]) == len(parts[2]) == room


def test_test_lines_of_the_training_split_are_a_warning(path):
    corpus = load(path, (TEXT + "\n") * 8, name="stream", block=4)
    assert "also stand in training" in "".join(corpus.facts.warnings)
    assert load(path, TEXT * 8).facts.warnings == []


def test_lines_that_are_equal_once_cut_stand_in_training_too(path):
    text = "".join(f"{'a ' * 9}{i}\n" for i in range(40))
    assert load(path, text, length=5).facts.seen == 4


def test_two_spellings_of_a_line_are_in_the_same_split(path):
    lines = [f"{letter}{i}" for i in range(40) for letter in ("\xe9", "e\u0301")]
    corpus = load(path, "\n".join(lines), unit="char")
    numbers = [{s.strip("\xe9e\u0301") for s in decoded(corpus, getattr(corpus, p))} for p in PARTS]
    assert numbers[0].isdisjoint(numbers[1] | numbers[2])


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
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, unit], cwd=tmp_path, capture_output=True, text=True
    )
    assert int(done.stdout) < 5 * size, done.stderr
    assert f"of {size / 1e6:,.0f} MB" in done.stderr


# Any bytes

MARK = b"\xef\xbb\xbf"
WORDS = b"a/b c/ /\x0c/<pad>/e\xcc\x81/\xc3\xa9/\xc2\x85/c/;/-*".split(b"/")
ENDS = (b"\n", b"\n", b"\r\n", b"\r", b"\n \n")
words = st.lists(st.sampled_from(WORDS), max_size=6).map(b"".join)
residues = st.text("ACDxyz*-. ", min_size=1).map(str.encode)
ROWS = {
    "text": words.map(b"a b%b".__mod__),
    "stream": words.map(b"a b%b".__mod__),
    "pairs": st.tuples(words, words).map(lambda pair: b"a%b\tb%b" % pair),
    "fasta": st.one_of(
        st.tuples(words, residues).map(lambda record: b">%b\n A%b" % record), st.just(b";c\n#")
    ),
}
PACKED = (bytes, gzip.compress)


def files(rows):
    """Rows of a reader with line ends, into which some bytes were inserted at any place."""
    ended = st.tuples(rows, st.sampled_from(ENDS)).map(b"".join)
    whole = st.lists(ended, min_size=40, max_size=60).map(b"".join)
    inserted = st.one_of(st.just(b""), st.sampled_from([MARK, b"\0", b"\n"]), st.binary(max_size=3))
    places = st.tuples(whole, inserted, st.integers(0, 400))
    damaged = places.map(lambda x: x[0][: x[2]] + x[1] + x[0][x[2] :])
    return st.one_of(damaged, damaged, damaged, st.binary(max_size=200))


@pytest.mark.parametrize("spec", READERS, ids=lambda spec: " ".join(map(str, spec.values())))
def test_every_byte_is_read_or_said_or_the_file_is_refused(path, spec):
    read = []

    @settings(quick, max_examples=25)
    @given(files(ROWS[spec["name"]]), st.sampled_from(PACKED))
    def check(data, pack):
        read.append(accounts_for(path, data, pack(data), spec))

    check()
    assert sum(read) > 3, "nearly all files were refused"


def accounts_for(path, data, packed, spec):
    """Return False if a file is refused in one line; else check what is read, and return True."""
    refusal = ""
    path.write_bytes(packed)
    try:
        corpus = open_corpus(corpus_config({**spec, "path": str(path)}))
    except UserError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        return False
    facts, parts = corpus.facts, (corpus.train, corpus.valid, corpus.test)
    assert all(" " in line for line in describe_data(corpus))
    if spec.get("unit") == "byte":
        assert facts.tokens == len(data.removeprefix(MARK))
        return True
    text = data.decode().replace("\ufeff", "")  # what is no UTF-8 is refused
    kept = {*text, *text.upper()} if spec["name"] == "fasta" else {*text}
    assert {*"".join(corpus.vocabulary.tokens[len(SPECIALS) :])} - {"'"} <= {*kept, "\n"}
    assert (text != data.decode().removeprefix("\ufeff")) <= any("U+FEFF" in n for n in facts.notes)
    assert ("\r" in text) == any("carriage" in note for note in facts.notes)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    full = [line for line in lines if line.strip()]
    if spec["name"] == "stream":
        kept = text.replace("\r\n", "\n").replace("\r", "\n")
        words = len(kept.split()) + kept.count("\n")
        assert facts.tokens == (words if spec.get("unit") == "word" else len(kept))
        return True
    assert facts.blank == len(lines) - len(full)
    assert facts.splits == tuple(map(len, parts))
    if spec["name"] == "fasta":
        headers = sum(line.strip().startswith(">") for line in full)
        comments = sum(line.strip()[0] in ";#" for line in full)
        residues = sum(len("".join(line.split())) for line in full if line.strip()[0] not in ">;#")
        assert (sum(facts.splits), facts.tokens) == (headers, residues)
        assert bool(comments) == any("comment" in note for note in facts.notes)
    else:
        tokens = sum(
            len(line) if spec.get("unit") == "char" else len(line.split()) for line in full
        )
        assert (sum(facts.splits), facts.tokens) == (len(full), tokens)
    held = sum(int((part.ids > START).sum()) - int((part.ids == 2).sum()) for part in parts)
    if corpus.source_vocabulary:
        held += sum(int((p.sources[0] > START).sum()) - len(p) for p in parts)
    assert held == facts.tokens - facts.lost
    return True


def test_a_gzip_file_that_unpacks_to_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "small.gz"
    path.write_bytes(gzip.compress(b"a b c\n" * 10_000))
    monkeypatch.setattr("lmzoo.base.memory.machine_bytes", lambda: 100_000)
    with pytest.raises(UserError, match=r"the content of .* needs at least"):
        read_bytes(path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("\u732b\u304c".encode("iso2022_jp"), "2 escapes of ISO-2022"),
        ("Gr\u00fc\u00dfe".encode("utf-7"), "1 shifts of UTF-7"), (b"a ~{VPND~} b", "shifts of HZ"),
        (b"a\n\xef\xbf\xbd", "(U+FFFD), first in line 2"), (b"caf\xc3\x83\xc2\xa9", "Latin-1"),
        (b"a &amp; b", "entities of HTML"),
        (b"00:00:01,000 --> 00:00:02,000", "times of subtitles"),
        (b"1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_", "lines of CoNLL"),
        (b"U.N. NNP I-NP B-ORG\nHeitz NNP I-NP B-PER", "2 lines of CoNLL"),
        (b"00:01.000 --> 00:02.000", "times of subtitles"),
        (b"Dialogue: 0,0:00:01.00", "times of subtitles"),
        (b"<b>a</b> </s>", "1 tags of HTML or XML"),
        (b"\\emph{a} caf\\u00e9", "1 commands of TeX"),
        (b"\\emph{a} caf\\u00e9", "1 escapes of JSON"),
        (b"a [[b|c]] {{d}}", "2 links or templates of a wiki"),
        ("\u043f".encode().decode("latin-1").encode(), "1 pairs such as"),
        ("so\u00adft \u200b".encode(), "2 invisible characters"),
        (b"m\bman", "1 escapes of terminals"),
        (b"\x1b[31mred", "terminals"),
        (b"C++ 1+1=2 A+B-C x~{a} R&D; well-known", ""),
    ],
)  # fmt: skip
def test_what_looks_like_text_and_is_not_is_said(content, found, tmp_path):
    (tmp_path / "a.txt").write_bytes(content)
    reading = Reading()
    read_bytes(tmp_path / "a.txt", reading)
    assert found in " ".join(reading.notes)
    assert bool(reading.notes) == bool(found)


def test_what_takes_long_to_read_is_said(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"a sentence of number {i}\n" for i in range(2000)))
    monkeypatch.setattr("lmzoo.base.streams.PATIENCE", 0.0)
    open_corpus(f"text:{text}")
    assert "reading corpus text ...\n" in capsys.readouterr().err
