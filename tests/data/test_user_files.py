"""Corpora from the user's own files, and the errors of such files."""

import gzip
from pathlib import Path

import pytest

from lmzoo.contract import END
from lmzoo.data.corpus import describe_data, open_corpus
from lmzoo.data.splits import deal
from tests.user_errors import raises_user_error

LINES = [f"Line {i} here" for i in range(20)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write(tmp_path / "my.txt", LINES)


def decoded(corpus, part) -> list[str]:
    return [corpus.vocabulary.decode(row) for row in part.tokens.tolist()]


def test_the_lines_of_a_text_are_dealt_by_their_hash(text):
    corpus = open_corpus({"name": "text", "path": str(text), "train_unk": False})
    train, valid, test, _ = deal(LINES)
    assert (len(train), len(valid), len(test)) == (16, 2, 2)
    assert decoded(corpus, corpus.train) == [LINES[i] for i in train]
    for part, places in ((corpus.valid, valid), (corpus.test, test)):
        ids = [corpus.vocabulary.encode(LINES[i].split()) for i in places]
        assert decoded(corpus, part) == [corpus.vocabulary.decode(row) for row in ids]
    assert (corpus.name, corpus.unit, corpus.task.length) == ("text", "word", 64)
    assert corpus.train.tokens[:, 4].eq(END).all()
    assert corpus.floor is None
    assert "my.txt" in corpus.source


def test_lower_case_characters_of_cut_lines(text):
    corpus = open_corpus(
        {"name": "text", "path": str(text), "unit": "char", "lower": True, "length": 6}
    )
    assert decoded(corpus, corpus.train) == ["line "] * 16
    assert corpus.unit == "character"
    assert not corpus.train.tokens.eq(END).any()  # every line was cut


def test_fasta_records_may_span_several_lines(tmp_path):
    flat = [part for i in range(10) for part in (f">{i}", "MKVL" + "ACDEFGHIKL"[i])]
    wrapped = [part for i in range(10) for part in (f">{i}", "MK", "", "vl", "ACDEFGHIKL"[i])]
    first = open_corpus(f"fasta:{write(tmp_path / 'flat.fa', flat)}")
    second = open_corpus(f"fasta:{write(tmp_path / 'wrapped.fa', wrapped)}")
    assert first.fingerprint == second.fingerprint
    assert set(decoded(first, first.train)) < {f"MKVL{letter}" for letter in "ACDEFGHIKL"}
    assert first.test_size.words is None
    assert (first.name, first.unit) == ("fasta", "residue")


@pytest.mark.parametrize("spec", ["text", "fasta"])
def test_an_unreadable_file_is_named_in_the_error(tmp_path, spec):
    with raises_user_error(tmp_path / "none", "does not exist"):
        open_corpus(f"{spec}:{tmp_path / 'none'}")
    with raises_user_error(tmp_path, "folder"):
        open_corpus(f"{spec}:{tmp_path}")
    for content in (b"", b" \n\n", gzip.compress(b"")):
        (tmp_path / "empty").write_bytes(content)
        with raises_user_error(tmp_path / "empty", "empty"):
            open_corpus(f"{spec}:{tmp_path / 'empty'}")
    for spec_without_path in (spec, f"{spec}:"):
        with raises_user_error("needs a file", f"{spec}:PATH"):
            open_corpus(spec_without_path)


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        (["MKV", ">a", "MKV"], ("line 1", "'MKV'")),
        (["", "MKV"], ("line 2", "'MKV'")),
        ([">a", "MKV", ">b", "", ">c", "MKV"], ("line 3", "'>b'", "no residues")),
        ([">a", "MKV", ">b"], ("line 3", "'>b'", "no residues")),
    ],
)
def test_an_invalid_fasta_line_is_located(tmp_path, lines, parts):
    path = write(tmp_path / "bad.fa", lines)
    with raises_user_error(path, *parts):
        open_corpus(f"fasta:{path}")


CHINESE = [f"我爱自然语言处理和机器学习第{i}句" for i in range(100)]


def test_unread_words_are_a_warning_with_the_way_out(tmp_path):
    path = write(tmp_path / "cjk.txt", CHINESE)
    corpus = open_corpus(f"text:{path}")
    block = describe_data(corpus)
    assert "the text has no blanks between words" in "".join(block)
    way = "50.0 % of the test tokens are <unk>, which hides them; set corpus.unit=bpe or"
    assert any(line.startswith(f"WARNING: {way}") for line in block)
    assert any(way in text for text in corpus.facts.as_json()["warnings"]), "in the answer"
    assert "WARNING" not in "".join(describe_data(open_corpus(by_byte_pairs("text", path))))


def by_byte_pairs(name, path, **fields):
    return {"name": name, "path": str(path), "unit": "bpe", "vocab": 300, "length": 99, **fields}


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_byte_pairs_of_lines_are_learned_on_the_training_lines_and_decode_to_them(tmp_path, name):
    lines = [
        f"über {line}" + f"\tder {i}. Satz" * (name == "pairs") for i, line in enumerate(CHINESE)
    ]
    corpus = open_corpus(by_byte_pairs(name, write(tmp_path / "x.txt", lines)))
    shown = {line.rpartition("\t")[2] for line in lines}
    for part in (corpus.train, corpus.valid, corpus.test):
        assert part.unknown_share == 0
        assert {*decoded(corpus, part)} <= shown
    assert corpus.unit == "subword"
    assert len(corpus.vocabulary) <= 300
    assert corpus.test_size.characters == sum(len(t) + 1 for t in decoded(corpus, corpus.test))
    with raises_user_error("min_count=2"):
        open_corpus(by_byte_pairs(name, tmp_path / "x.txt", min_count=2))
