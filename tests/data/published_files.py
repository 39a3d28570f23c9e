"""Small stand-ins for the files of published corpora, as their publishers pack them."""

import zipfile
from pathlib import Path

WORDS = ["the", "cat", "saw", "a", "dog", "<unk>", "near", "old", "trees", "in", "N", "days", "."]


def lines(count: int, seed: int = 0) -> str:
    """Return deterministic lines of words; every line begins and ends with a blank, as in PTB."""
    return "".join(
        " " + " ".join(WORDS[(seed + i * i + j) % len(WORDS)] for j in range(4 + i % 5)) + " \n"
        for i in range(count)
    )


FLAT = lines(400).replace("\n", "")
XML = "<page>é日</page> and more words\n" * 100
SPLITS = {"train": lines(300), "valid": lines(60, 1), "test": lines(70, 2)}

FILES: dict[str, dict[str, str]] = {
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


def write_archive(folder: Path, corpus: str, *, without: str = "nothing") -> Path:
    """Write the archive of a corpus without the members that contain `without`."""
    path = folder / ARCHIVES[corpus]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in FILES[corpus].items():
            if without not in name:
                archive.writestr(name, text)
    return path


def write_published(folder: Path, corpus: str) -> None:
    """Write what the publisher offers for download."""
    if corpus in ARCHIVES:
        write_archive(folder, corpus)
    else:
        write_unpacked(folder, corpus)


def write_unpacked(folder: Path, corpus: str) -> None:
    """Write the files of a corpus without their archive."""
    for name, text in FILES[corpus].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
