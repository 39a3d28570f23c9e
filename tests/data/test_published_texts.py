"""Published texts: their splits, their files and downloads, their faults."""

import dataclasses
import gzip
import hashlib
from pathlib import Path

import pytest
import torch

from lmzoo.data import download, published_texts
from lmzoo.data.corpus import CORPORA, open_corpus
from lmzoo.laws.corpora import CORPUS_LAWS
from tests.data.published_files import (
    ARCHIVES,
    FILES,
    FLAT,
    SPLITS,
    XML,
    write_archive,
    write_published,
    write_unpacked,
)
from tests.user_errors import raises_user_error


def spec(corpus, **fields):
    return {"name": corpus, "block": 8, **fields}


def text_of(corpus, part):
    return corpus.vocabulary.decode(part.tokens[part.scored].tolist())


def parts(corpus, folder, **fields):
    """Return the text of the three splits as characters."""
    config = CORPORA.parse(spec(corpus, unit="char", **fields))
    source = CORPORA.build(config, folder)
    return tuple(bytes(text).decode() for text in source.texts())


@pytest.mark.parametrize("corpus", FILES)
def test_corpora_obey_the_laws(tmp_path, corpus):
    write_published(tmp_path, corpus)

    class Source:
        def load(self):
            return open_corpus(spec(corpus), tmp_path)

    for law in CORPUS_LAWS:
        law(Source())


@pytest.mark.parametrize("corpus", FILES)
def test_every_way_of_keeping_the_files_gives_the_same_data(tmp_path, corpus):
    folders = [tmp_path / name for name in ("published", "sub", "unpacked", "zipped")]
    for folder in folders:
        folder.mkdir()
    write_published(folders[0], corpus)
    subfolder = next(iter(FILES[corpus])).partition("/")[0] if corpus in ARCHIVES else corpus
    (folders[1] / subfolder).mkdir()
    write_published(folders[1] / subfolder, corpus)
    write_unpacked(folders[2], corpus)
    write_unpacked(folders[3], corpus)
    for path in [path for path in folders[3].rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    prints = {open_corpus(spec(corpus), folder).fingerprint for folder in folders}
    assert len(prints) == 1


def test_text8_and_enwik8_are_split_90_5_5(tmp_path):
    write_published(tmp_path, "text8")
    write_published(tmp_path, "enwik8")
    train, valid, test = parts("text8", tmp_path)
    assert train + valid + test == FLAT
    assert len(train) == len(FLAT) * 90 // 100
    assert len(train) + len(valid) == len(FLAT) * 95 // 100
    raw = XML.encode()
    texts = CORPORA.build(CORPORA.parse(spec("enwik8")), tmp_path).texts()
    assert [len(text) for text in texts] == [
        len(raw) * 9 // 10,
        len(raw) * 95 // 100 - len(raw) * 9 // 10,
        len(raw) - len(raw) * 95 // 100,
    ]
    assert "".join(parts("enwik8", tmp_path)) == XML


@pytest.mark.parametrize("corpus", ["ptb", "wikitext-2", "wikitext-103"])
def test_the_published_splits_are_used(tmp_path, corpus):
    write_published(tmp_path, corpus)
    assert parts(corpus, tmp_path) == tuple(SPLITS.values())
    opened = open_corpus(spec(corpus), tmp_path)
    assert opened.valid.num_scored == len(SPLITS["valid"].split()) + 60
    assert "<unk>" in text_of(opened, opened.test)


def test_wikitext_has_a_raw_version(tmp_path):
    folder = tmp_path / "wikitext-2-raw"
    folder.mkdir()
    for split, text in SPLITS.items():
        (folder / f"wiki.{split}.raw").write_text(text.upper())
    assert parts("wikitext-2", tmp_path, version="raw")[1] == SPLITS["valid"].upper()


@pytest.mark.parametrize("corpus", FILES)
def test_a_missing_file_is_named(tmp_path, corpus):
    name = ARCHIVES.get(corpus) or next(iter(FILES[corpus]))
    with raises_user_error(corpus, name, tmp_path):
        open_corpus(corpus, tmp_path)
    with raises_user_error(corpus, "does not exist", tmp_path / "none"):
        open_corpus(corpus, tmp_path / "none")


@pytest.mark.parametrize(
    ("corpus", "missing", "pattern"),
    [
        ("wikitext-2", "valid", "wiki.valid.tokens"),
        ("text8", "text8", "text8"),
    ],
)
def test_an_archive_without_a_split_is_refused(tmp_path, corpus, missing, pattern):
    path = write_archive(tmp_path, corpus, without=missing)
    with raises_user_error(corpus, path, f"has no {pattern}"):
        open_corpus(corpus, tmp_path)


def test_the_last_line_of_wikitext_ends(tmp_path: Path) -> None:
    """Published results count an end of line for each line, and the files end with one."""
    write_unpacked(tmp_path, "wikitext-2")
    fields = {"name": "wikitext-2", "block": 4}
    whole = open_corpus(fields, tmp_path).fingerprint
    for file in tmp_path.glob("wikitext-2/*"):
        file.write_bytes(file.read_bytes().removesuffix(b"\n"))
    assert open_corpus(fields, tmp_path).fingerprint == whole


def test_a_download_is_what_a_folder_gives(tmp_path, monkeypatch):
    """Every address is that of a file which the publisher offers; checksums are compared."""
    www = tmp_path / "www"
    www.mkdir()
    for corpus in FILES:
        write_published(www, corpus)
    asked = []

    def stream(url, output_file, pooch):
        del pooch
        asked.append(url)
        Path(output_file).write_bytes((www / url.rpartition("/")[2]).read_bytes())

    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "_stream", stream)
    for corpus in FILES:
        with raises_user_error(corpus, "damaged or changed"):
            open_corpus(spec(corpus))

    def served(file):
        here = (www / file.name).read_bytes() if (www / file.name).is_file() else b""
        return dataclasses.replace(file, checksum=f"md5:{hashlib.md5(here).hexdigest()}")

    mine = {name: served(file) for name, file in published_texts.FILES.items()}
    monkeypatch.setattr(published_texts, "FILES", mine)
    for corpus in FILES:
        downloaded = open_corpus(spec(corpus)).fingerprint
        assert downloaded == open_corpus(spec(corpus), www).fingerprint
    assert all(url.startswith("http") for url in asked)


PLAYS = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 40


def test_the_splits_of_shakespeare(tmp_path):
    (tmp_path / "input.txt").write_text(PLAYS)
    last = PLAYS[int(0.9 * len(PLAYS)) :]
    corpus = open_corpus("shakespeare_char", tmp_path)
    held_out = [corpus.valid.tokens[corpus.valid.scored], corpus.test.tokens[corpus.test.scored]]
    assert corpus.vocabulary.decode(torch.cat(held_out).tolist()) == last
    as_published = open_corpus({"name": "shakespeare_char", "split": "nanogpt"}, tmp_path)
    assert text_of(as_published, as_published.valid) == last
    assert as_published.test.tokens.equal(as_published.valid.tokens)
