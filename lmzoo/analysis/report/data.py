"""The data of a study: what the corpus is, how it was read, and the sizes of its test split."""

import json

import polars as pl

from lmzoo.analysis.load import StudyFolder
from lmzoo.analysis.ranking import TABLE_KEYS
from lmzoo.analysis.report.html import paragraphs
from lmzoo.docstrings import class_docstring


def data_section(folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return the description of each corpus, its options and the sizes of its test split."""
    parts = ranked.unique(TABLE_KEYS[1:], keep="first", maintain_order=True)
    return "".join(paragraphs(_lines(folder, row), "text") for row in parts.to_dicts())


def _lines(folder: StudyFolder, row: dict) -> list[str]:
    corpus = json.loads(row["corpus"])
    name = corpus.pop("name", "corpus")
    text = " ".join(class_docstring("CORPORA", name).replace("`", "").split())
    options = ", ".join(f"{key}={value}" for key, value in corpus.items() if value is not None)
    sizes = f"The vocabulary has {row['vocab']:,} tokens; sequences have up to {row['length']}."
    return [
        f"{name}: {text or 'a corpus of the user.'}",
        *(
            [f"Options of this study: {options}. `lmzoo describe {name}` explains them."]
            if options
            else []
        ),
        f"{sizes}{_test_size(folder, row['fingerprint'])}",
    ]


def _test_size(folder: StudyFolder, fingerprint: str) -> str:
    """Return what the test loss is a mean over."""
    runs = folder.runs.filter(pl.col("fingerprint") == fingerprint).select("run")
    tests = folder.events.filter(pl.col("event") == "test").join(runs, on="run")
    sizes = tests.select("tokens", "sequences").drop_nulls().first().collect()
    if sizes.is_empty():
        return ""
    tokens, sequences = sizes.row(0)
    return f" The test loss is a mean over {tokens:,} tokens of {sequences:,} sequences."
