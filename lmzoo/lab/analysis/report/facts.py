"""What a page says of a study's data and of the audit of its points, from their records."""

import json
import shlex
from pathlib import Path

import polars as pl

from lmzoo.base.docstrings import class_docstring
from lmzoo.lab.analysis.baseline_comparison import FIVE_GRAM
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.render import store_address
from lmzoo.lab.analysis.report.html import code_block, paragraphs
from lmzoo.lab.analysis.report.recipe import portable


def data_section(folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return the description of each corpus, its options and the sizes of its test split."""
    parts = ranked.unique(TABLE_KEYS[1:], keep="first", maintain_order=True)
    return "".join(paragraphs(_lines(folder, row), "text") for row in parts.to_dicts())


def _lines(folder: StudyFolder, row: dict) -> list[str]:
    if row["vocab"] is None:
        return ["The functions and commands of the study bring their own data."]
    corpus = json.loads(row["corpus"])
    name = corpus.pop("name", "corpus")
    text = " ".join(class_docstring("CORPORA", name).replace("`", "").split())
    options = ", ".join(f"{key}={value}" for key, value in corpus.items() if value is not None)
    sizes = f"The vocabulary has {row['vocab']:,} tokens; sequences have up to {row['length']}."
    explained = (
        f"Options of this study: {options}. The command lmzoo describe {name} explains them."
    )
    return [
        f"{name}: {text or 'a corpus of the user.'}",
        *([explained] if options else []),
        f"{sizes}{_test_size(folder, row['fingerprint'])}",
    ]


def _test_size(folder: StudyFolder, fingerprint: str) -> str:
    runs = folder.runs.filter(pl.col("fingerprint") == fingerprint).select("run")
    tests = folder.events.filter(pl.col("event") == "test").join(runs, on="run")
    sizes = tests.select("tokens", "sequences").drop_nulls().first().collect()
    if sizes.is_empty():
        return ""
    tokens, sequences = sizes.row(0)
    return f" The test loss is a mean over {tokens:,} tokens of {sequences:,} sequences."


def audit_section(path: Path, folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return the audit results of all points, from their training, and commands for two models.

    The two are the best one that neither leaks nor is a count model, and the reference.
    """
    programs = folder.runs.drop_nulls("program").select("point").unique().collect()["point"]
    leaking = ranked.filter(pl.col("leaks") != "")
    lines = [f"{row['label']}: {row['leaks']}" for row in leaking.to_dicts()]
    models = ranked.filter(
        pl.col("score").is_not_null() & ~pl.col("point").is_in(programs.implode())
    )
    audited = models.height
    passed = f"{audited - len(lines)} of {audited} points passed the audit when they were trained"
    if len(programs):
        lines.append(f"{len(programs)} points train programs of the user, which are not audited")
    counts = pl.col("architecture") == FIVE_GRAM["name"]
    own = models.filter(pl.col("leaks") == "", ~counts).drop_nulls("rank")
    code = ""
    shown = pl.concat([own.head(1), own.filter("reference")]).unique(maintain_order=True)
    store = store_address(portable(path, folder.study))
    for row in shown.to_dicts():
        run = shlex.quote(f"{store}/{folder.study['chosen'][row['point']]['runs'][0]}")
        code += f"# {row['label']}\nlmzoo audit {run}\nlmzoo sample {run}\n"
    return paragraphs([passed, *lines], "text") + (code_block(code.strip()) if code else "")
