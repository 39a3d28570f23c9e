"""Published texts: their splits, their files and downloads, their faults."""

import dataclasses
import gzip
import hashlib
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from lmzoo.data import download, published_texts
from lmzoo.data.corpus import CORPORA, open_corpus
from lmzoo.laws.corpora import CORPUS_LAWS
from tests.user_errors import raises_user_error

WORDS = ["the", "cat", "saw", "a", "dog", "<unk>", "near", "old", "trees", "in", "N", "days", "."]


def lines(count, seed=0):
    """Return lines that depend on `seed` only; each begins and ends with a blank, as in PTB."""
    return "".join(
        " " + " ".join(WORDS[(seed + i * i + j) % len(WORDS)] for j in range(4 + i % 5)) + " \n"
        for i in range(count)
    )


FLAT = lines(400).replace("\n", "")
XML = "<page>é日</page> and more words\n" * 100
PLAYS = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 40
SPLITS = {"train": lines(300), "valid": lines(60, 1), "test": lines(70, 2)}
FILES = {
    "text8": {"text8": FLAT},
    "enwik8": {"enwik8": XML},
    "wikitext-2": {f"wikitext-2/wiki.{k}.tokens": v for k, v in SPLITS.items()},
    "wikitext-103": {f"wikitext-103/wiki.{k}.tokens": v for k, v in SPLITS.items()},
    "ptb": {f"ptb.{k}.txt": v for k, v in SPLITS.items()},
}
"""Corpus -> name of each file, as in its archive, and text."""
ARCHIVES = {
    "text8": "text8.zip",
    "enwik8": "enwik8.zip",
    "wikitext-2": "wikitext-2-v1.zip",
    "wikitext-103": "wikitext-103-v1.zip",
}
every_corpus = pytest.mark.parametrize("corpus", FILES)


def write_published(folder, corpus, without="nothing"):
    """Write what the publisher offers for download, without the members that contain a text."""
    if corpus not in ARCHIVES:
        return write_unpacked(folder, corpus)
    path = folder / ARCHIVES[corpus]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in FILES[corpus].items():
            if without not in name:
                archive.writestr(name, text)
    return path


def write_unpacked(folder, corpus):
    """Write the files of a corpus without their archive."""
    for name, text in FILES[corpus].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def spec(corpus, **fields):
    return {"name": corpus, "block": 8, **fields}


def text_of(corpus, part):
    return corpus.vocabulary.decode(part.tokens[part.scored].tolist())


def parts(corpus, folder, **fields):
    """Return the text of the three splits, by default as characters."""
    source = CORPORA.build(CORPORA.parse(spec(corpus, **{"unit": "char", **fields})), folder)
    return tuple(bytes(text) for text in source.texts())


@every_corpus
def test_corpora_obey_the_laws_in_every_way_of_keeping_the_files(tmp_path, corpus):
    folders = [tmp_path / name for name in ("published", "sub", "unpacked", "zipped")]
    subfolder = corpus
    if corpus in ARCHIVES:
        subfolder = next(iter(FILES[corpus])).partition("/")[0]
    for folder in (*folders, folders[1] / subfolder):
        folder.mkdir()
    write_published(folders[0], corpus)
    write_published(folders[1] / subfolder, corpus)
    write_unpacked(folders[2], corpus)
    write_unpacked(folders[3], corpus)
    for path in [path for path in folders[3].rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len({open_corpus(spec(corpus), folder).fingerprint for folder in folders}) == 1
    for law in CORPUS_LAWS:
        law(CORPORA.build(CORPORA.parse(spec(corpus)), folders[0]))


def test_text8_and_enwik8_are_split_90_5_5(tmp_path):
    for corpus, unit, text in (("text8", "char", FLAT), ("enwik8", "byte", XML)):
        write_published(tmp_path, corpus)
        found = parts(corpus, tmp_path, unit=unit)
        raw = text.encode()
        assert b"".join(found) == raw
        ends = [int(share * len(raw)) for share in (0, 0.9, 0.95, 1)]
        assert list(map(len, found)) == [b - a for a, b in pairwise(ends)]
    assert b"".join(parts("enwik8", tmp_path)).decode() == XML


@pytest.mark.parametrize("corpus", ["ptb", "wikitext-2", "wikitext-103"])
def test_the_published_splits_are_used(tmp_path, corpus):
    write_published(tmp_path, corpus)
    assert parts(corpus, tmp_path) == tuple(map(str.encode, SPLITS.values()))
    opened = open_corpus(spec(corpus), tmp_path)
    assert opened.valid.num_scored == len(SPLITS["valid"].split()) + 60
    assert "<unk>" in text_of(opened, opened.test)


def test_wikitext_has_a_raw_version_and_its_last_line_ends(tmp_path):
    """Published results count an end of line for each line, and the files end with one."""
    for split, text in SPLITS.items():
        (tmp_path / f"wiki.{split}.raw").write_text(text.upper())
        (tmp_path / f"wiki.{split}.tokens").write_text(text.removesuffix("\n"))
    assert parts("wikitext-2", tmp_path, version="raw")[1].decode() == SPLITS["valid"].upper()
    assert parts("wikitext-2", tmp_path)[1].decode() == SPLITS["valid"]


@every_corpus
def test_a_missing_file_is_named(tmp_path, corpus):
    name = ARCHIVES.get(corpus) or next(iter(FILES[corpus]))
    with raises_user_error(corpus, name, tmp_path):
        open_corpus(corpus, tmp_path)
    with raises_user_error(corpus, "does not exist", tmp_path / "none"):
        open_corpus(corpus, tmp_path / "none")


@pytest.mark.parametrize(("corpus", "missing"), [("wikitext-2", "valid"), ("text8", "text8")])
def test_an_archive_without_a_split_is_refused(tmp_path, corpus, missing):
    path = write_published(tmp_path, corpus, without=missing)
    pattern = missing
    if corpus == "wikitext-2":
        pattern = f"wiki.{missing}.tokens"
    with raises_user_error(corpus, path, f"has no {pattern}"):
        open_corpus(corpus, tmp_path)


def test_a_download_is_what_a_folder_gives(tmp_path, monkeypatch):
    """Every address is that of a file which the publisher offers; checksums are compared."""
    www = tmp_path / "www"
    www.mkdir()
    for corpus in FILES:
        write_published(www, corpus)

    def stream(url, output_file, pooch):
        assert url.startswith("http")
        Path(output_file).write_bytes((www / url.rpartition("/")[2]).read_bytes())

    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "_stream", stream)
    for corpus in FILES:
        with raises_user_error(corpus, "damaged or changed"):
            open_corpus(spec(corpus))

    def served(file):
        here = b""
        if (www / file.name).is_file():
            here = (www / file.name).read_bytes()
        return dataclasses.replace(file, checksum=f"md5:{hashlib.md5(here).hexdigest()}")

    mine = {name: served(file) for name, file in published_texts.FILES.items()}
    monkeypatch.setattr(published_texts, "FILES", mine)
    for corpus in FILES:
        downloaded = open_corpus(spec(corpus)).fingerprint
        assert downloaded == open_corpus(spec(corpus), www).fingerprint


def test_the_splits_of_shakespeare(tmp_path):
    (tmp_path / "input.txt").write_text(PLAYS)
    last = PLAYS[int(0.9 * len(PLAYS)) :]
    corpus = open_corpus("shakespeare_char", tmp_path)
    held_out = [corpus.valid.tokens[corpus.valid.scored], corpus.test.tokens[corpus.test.scored]]
    assert corpus.vocabulary.decode(torch.cat(held_out).tolist()) == last
    as_published = open_corpus({"name": "shakespeare_char", "split": "nanogpt"}, tmp_path)
    assert text_of(as_published, as_published.valid) == last
    assert as_published.test.tokens.equal(as_published.valid.tokens)
