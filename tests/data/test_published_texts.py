"""Published texts: their splits, their files and downloads, their faults."""

import dataclasses
import gzip
import hashlib
import zipfile
from pathlib import Path

import pytest

from lmzoo.data import download, published_texts
from lmzoo.data.corpus import CORPORA, open_corpus
from lmzoo.laws.corpora import CORPUS_LAWS
from tests.user_errors import raises_user_error

WORDS = ["the", "cat", "saw", "a", "dog", "<unk>", "near", "old", "trees", "in", "N", "days", "."]


def lines(count, seed=0):
    """Return lines that depend on `seed` only; each begins and ends with a blank, as in PTB."""
    written = []
    for i in range(count):
        begin = seed + i * i
        places = range(begin, begin + 4 + i % 5)
        words = [WORDS[place % len(WORDS)] for place in places]
        written.append(" " + " ".join(words) + " \n")
    return "".join(written)


FLAT = lines(400).replace("\n", "")
XML = "<page>é日</page> and more words\n" * 100
PLAYS = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 40
SPLITS = {"train": lines(300), "valid": lines(60, 1), "test": lines(70, 2)}
FILES = {
    "text8": {"text8": FLAT},
    "enwik8": {"enwik8": XML},
    "wikitext-2": {f"wikitext-2/wiki.{split}.tokens": SPLITS[split] for split in SPLITS},
    "wikitext-103": {f"wikitext-103/wiki.{split}.tokens": SPLITS[split] for split in SPLITS},
    "ptb": {f"ptb.{split}.txt": SPLITS[split] for split in SPLITS},
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
    # A split of these short texts has room for blocks of 8.
    return {"name": corpus, "block": 8} | fields


def source_of(corpus, folder, **fields):
    config = CORPORA.parse(spec(corpus, **fields))
    return CORPORA.build(config, folder)


def text_of(corpus, part):
    ids = part.tokens[part.scored].tolist()
    return corpus.vocabulary.decode(ids)


def parts(corpus, folder, unit="char", **fields):
    """Return the text of the three splits."""
    source = source_of(corpus, folder, unit=unit, **fields)
    return tuple(map(bytes, source.texts()))


def published_in_a_subfolder(folder, corpus):
    """Write the files into the folder that the archive would unpack to."""
    first = next(iter(FILES[corpus]))
    subfolder = folder / corpus
    if corpus in ARCHIVES:
        subfolder = folder / first.partition("/")[0]
    subfolder.mkdir()
    write_published(subfolder, corpus)


def each_file_compressed(folder, corpus):
    write_unpacked(folder, corpus)
    # A list, because the loop changes the folder.
    for path in list(folder.rglob("*")):
        if path.is_file():
            compressed = path.with_name(f"{path.name}.gz")
            compressed.write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()


WAYS = (write_published, published_in_a_subfolder, write_unpacked, each_file_compressed)


@every_corpus
def test_every_way_of_keeping_the_files_is_the_same_corpus(tmp_path, corpus):
    fingerprints = set()
    for way in WAYS:
        folder = tmp_path / way.__name__
        folder.mkdir()
        way(folder, corpus)
        opened = open_corpus(spec(corpus), folder)
        fingerprints.add(opened.fingerprint)
    assert len(fingerprints) == 1


@every_corpus
def test_published_texts_obey_the_laws_of_corpora(tmp_path, corpus):
    write_published(tmp_path, corpus)
    source = source_of(corpus, tmp_path)
    for law in CORPUS_LAWS:
        law(source)


@pytest.mark.parametrize(
    ("corpus", "unit", "text"), [("text8", "char", FLAT), ("enwik8", "byte", XML)]
)
def test_texts_without_published_splits_are_cut_90_5_5(tmp_path, corpus, unit, text):
    write_published(tmp_path, corpus)
    train, valid, test = parts(corpus, tmp_path, unit)
    raw = text.encode()
    assert train + valid + test == raw
    assert len(train) == int(0.9 * len(raw))
    assert len(train + valid) == int(0.95 * len(raw))


def test_no_character_of_enwik8_is_divided(tmp_path):
    write_published(tmp_path, "enwik8")
    texts = [part.decode() for part in parts("enwik8", tmp_path)]
    assert "".join(texts) == XML


@pytest.mark.parametrize("corpus", ["ptb", "wikitext-2", "wikitext-103"])
def test_the_published_splits_are_used(tmp_path, corpus):
    write_published(tmp_path, corpus)
    opened = open_corpus(spec(corpus), tmp_path)
    words = SPLITS["valid"].split()
    assert parts(corpus, tmp_path) == tuple(map(str.encode, SPLITS.values()))
    # The validation split has 60 lines.
    assert opened.valid.num_scored == len(words) + 60
    assert "<unk>" in text_of(opened, opened.test)


def test_wikitext_has_a_raw_version_and_its_last_line_ends(tmp_path):
    for split, text in SPLITS.items():
        raw = tmp_path / f"wiki.{split}.raw"
        tokens = tmp_path / f"wiki.{split}.tokens"
        raw.write_text(text.upper())
        tokens.write_text(text.removesuffix("\n"))
    _, raw_valid, _ = parts("wikitext-2", tmp_path, version="raw")
    _, valid, _ = parts("wikitext-2", tmp_path)
    # Published results count an end of line for each line, and the files end with one.
    assert raw_valid.decode() == SPLITS["valid"].upper()
    assert valid.decode() == SPLITS["valid"]


@every_corpus
def test_a_missing_file_is_named(tmp_path, corpus):
    first = next(iter(FILES[corpus]))
    name = ARCHIVES.get(corpus, first)
    with raises_user_error(corpus, name, tmp_path):
        open_corpus(corpus, tmp_path)
    nowhere = tmp_path / "none"
    with raises_user_error(corpus, "does not exist", nowhere):
        open_corpus(corpus, nowhere)


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
        name = url.rpartition("/")[2]
        Path(output_file).write_bytes((www / name).read_bytes())

    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    # No test reaches the network.
    monkeypatch.setattr(download, "_stream", stream)
    for corpus in FILES:
        with raises_user_error(corpus, "damaged or changed"):
            open_corpus(spec(corpus))

    def served(file):
        """Return the file with the checksum of what this test offers."""
        content = b""
        if (www / file.name).is_file():
            content = (www / file.name).read_bytes()
        digest = hashlib.md5(content).hexdigest()
        return dataclasses.replace(file, checksum=f"md5:{digest}")

    mine = {name: served(file) for name, file in published_texts.FILES.items()}
    monkeypatch.setattr(published_texts, "FILES", mine)
    for corpus in FILES:
        downloaded = open_corpus(spec(corpus))
        local = open_corpus(spec(corpus), www)
        assert downloaded.fingerprint == local.fingerprint


def test_the_splits_of_shakespeare(tmp_path):
    (tmp_path / "input.txt").write_text(PLAYS)
    last = PLAYS[int(0.9 * len(PLAYS)) :]
    corpus = open_corpus("shakespeare_char", tmp_path)
    valid = text_of(corpus, corpus.valid)
    test = text_of(corpus, corpus.test)
    assert valid + test == last
    as_published = open_corpus({"name": "shakespeare_char", "split": "nanogpt"}, tmp_path)
    assert text_of(as_published, as_published.valid) == last
    assert as_published.test.tokens.equal(as_published.valid.tokens)
