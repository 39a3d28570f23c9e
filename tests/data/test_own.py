"""The user's own files, and everything that can be wrong with them."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.contract import END, UNKNOWN
from lmzoo.data.lines import read_lines
from lmzoo.data.open import open_corpus
from tests.data.refused import refused
from tests.tiny import quick

LINES = [f"Line {i} here" for i in range(20)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write(tmp_path / "my.txt", LINES)


def decoded(corpus, part) -> list[str]:
    return [corpus.vocabulary.decode(row) for row in part.tokens.tolist()]


def test_a_text_is_dealt_eight_to_one_to_one(text):
    corpus = open_corpus(f"text:{text}")
    assert decoded(corpus, corpus.valid) == [
        corpus.vocabulary.decode(corpus.vocabulary.encode(LINES[i].split())) for i in (8, 18)
    ]
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [16, 2, 2]
    assert decoded(corpus, corpus.train) == [LINES[i] for i in range(20) if i % 10 < 8]
    assert (corpus.name, corpus.unit, corpus.task.length) == ("text", "word", 64)
    assert corpus.train.tokens[:, 4].eq(END).all()
    assert corpus.floor is None
    assert "my.txt" in corpus.source


def test_the_vocabulary_is_that_of_the_training_part(text):
    corpus = open_corpus(f"text:{text}")
    assert "7" in corpus.vocabulary.tokens
    assert not {"8", "9", "18", "19"} & set(corpus.vocabulary.tokens)
    assert corpus.valid.tokens[0, 2] == UNKNOWN


def test_lower_case_characters_and_a_cut(text):
    corpus = open_corpus(
        {"name": "text", "path": str(text), "unit": "char", "lower": True, "length": 6}
    )
    assert decoded(corpus, corpus.train) == ["line "] * 16
    assert corpus.unit == "character"
    assert not corpus.train.tokens.eq(END).any()  # every line was cut


def test_rare_words_become_unknown(text):
    corpus = open_corpus({"name": "text", "path": str(text), "min_count": 2})
    assert corpus.vocabulary.tokens[4:] == ("Line", "here")
    assert corpus.train.tokens.eq(UNKNOWN).sum() == 16


def test_gzip_blank_lines_windows_ends_and_a_mark_change_nothing(text, tmp_path):
    raw = "\n\n".join(LINES).replace("\n", "\r\n").encode()
    zipped = tmp_path / "my.gz"
    zipped.write_bytes(gzip.compress(b"\xef\xbb\xbf" + raw))
    nameless = tmp_path / "zipped_without_saying_so"
    nameless.write_bytes(zipped.read_bytes())
    prints = {
        open_corpus({"name": "text", "path": str(path), "unit": "char"}).fingerprint
        for path in (text, zipped, nameless)
    }
    assert len(prints) == 1


@quick
@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))))
def test_reading_undoes_writing(tmp_path_factory, lines):
    lines = ["first", *lines]
    assert read_lines(write(tmp_path_factory.getbasetemp() / "lines.txt", lines)) == lines


def test_a_fasta_may_be_wrapped(tmp_path):
    flat = [part for i in range(10) for part in (f">{i}", "MKVL" + "ACDEFGHIKL"[i])]
    wrapped = [part for i in range(10) for part in (f">{i}", "MK", "", "vl", "ACDEFGHIKL"[i])]
    one = open_corpus(f"fasta:{write(tmp_path / 'flat.fa', flat)}")
    two = open_corpus(f"fasta:{write(tmp_path / 'wrapped.fa', wrapped)}")
    assert one.fingerprint == two.fingerprint
    assert decoded(one, one.train)[0] == "MKVLA"
    assert (one.name, one.unit) == ("fasta", "residue")


@pytest.mark.parametrize("spec", ["text", "fasta"])
def test_a_bad_file_is_refused_by_name(tmp_path, spec):
    with refused(tmp_path / "none", "no file"):
        open_corpus(f"{spec}:{tmp_path / 'none'}")
    with refused(tmp_path, "folder"):
        open_corpus(f"{spec}:{tmp_path}")
    for content in (b"", b" \n\n", gzip.compress(b"")):
        (tmp_path / "empty").write_bytes(content)
        with refused(tmp_path / "empty", "empty"):
            open_corpus(f"{spec}:{tmp_path / 'empty'}")
    for nothing in (spec, f"{spec}:"):
        with refused("no file is given", f"{spec}:PATH"):
            open_corpus(nothing)


@pytest.mark.parametrize("packed", [False, True])
def test_bytes_that_are_not_text_are_found(tmp_path, packed):
    raw = "naïve\nnaïve\n".encode() + "naïve\n".encode("latin-1")
    path = tmp_path / "latin.txt"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with refused(path, "line 3", "ef"):
        open_corpus(f"text:{path}")


@pytest.mark.parametrize("damage", ["no gzip", "cut short", "scrambled"])
def test_a_broken_gzip_is_refused(tmp_path, damage):
    good = gzip.compress("\n".join(LINES).encode())
    path = tmp_path / "broken.gz"
    path.write_bytes(
        {"no gzip": b"text", "cut short": good[:-9], "scrambled": good[:12] + b"\xff" * 40}[damage]
    )
    with refused(path, "broken gzip"):
        open_corpus(f"text:{path}")


@pytest.mark.parametrize(("n", "part"), [(8, "valid"), (9, "test")])
def test_too_few_lines_are_counted(tmp_path, n, part):
    path = write(tmp_path / "few.txt", LINES[:n])
    with refused("text", f"{part} split is empty", "= 8 +", "longer file"):
        open_corpus(f"text:{path}")


def test_a_vocabulary_of_nothing_is_refused(text):
    with refused("text", "no word", "min_count"):
        open_corpus({"name": "text", "path": str(text), "min_count": 99})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["MKV", ">a", "MKV"], ("line 1", "'MKV'")),
        (["", "MKV"], ("line 2", "'MKV'")),
        ([">a", "MKV", ">b", "", ">c", "MKV"], ("line 3", "'>b'", "no residues")),
        ([">a", "MKV", ">b"], ("line 3", "'>b'", "no residues")),
    ],
)
def test_a_bad_fasta_is_refused_with_its_line(tmp_path, lines, said):
    path = write(tmp_path / "bad.fa", lines)
    with refused(path, *said):
        open_corpus(f"fasta:{path}")


@pytest.mark.parametrize("field", [{"unit": "byte"}, {"length": 1}, {"min_count": 0}, {"low": 1}])
def test_a_wrong_option_is_named(text, field):
    with refused(*field):
        open_corpus({"name": "text", "path": str(text), **field})
