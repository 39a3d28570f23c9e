"""The equations of the networks of a study, from the docstrings of their parts.

The data of a study: what the corpus is, how it was read, and the sizes of its test split.

The audit of its points, as they were trained.

The kinds of a study's points: cuts of the reference's cell, count models, baselines.
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.docstrings import class_docstring, first_block, part_docstring
from lmzoo.base.equations import cell_equations
from lmzoo.lab.analysis.baseline_comparison import FIVE_GRAM, TEXT_BASELINE
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.render import store_address
from lmzoo.lab.analysis.report.html import code_block, paragraphs
from lmzoo.lab.analysis.report.recipe import portable
from lmzoo.lab.store.records import USER_CODE

FUNCTIONS = Path(__file__).parents[3] / "functional"
INPUT_PATH = "No connection skips the cell: the input x_t reaches the output through h_t only."


def network_section(folder: StudyFolder) -> str:
    """Return the equations of the reference's network and of the other cells; "" without a cell."""
    models = point_models(folder)
    reference = models.get(folder.study.get("reference", ""))
    if not reference or not reference.get("cell"):
        return ""
    own, code = [folder.path / USER_CODE], ""
    labels = {point["id"]: point["label"] for point in folder.study["points"]}
    name = labels[folder.study["reference"]]
    lines = [*_frame(reference), "", *cell_equations(reference["cell"], own)]
    code += paragraphs([f"The network of {name!r}, the reference:"], "text")
    code += code_block("\n".join(lines).strip())
    if "cell(x_t, h_{t-1})" in "".join(lines):
        code += paragraphs([INPUT_PATH], "text")
    for point, cell in _other_cells(
        {p: models[p] for p in labels if p in models}, reference
    ).items():
        equations = cell_equations(cell, own)
        if equations:
            text = (
                f"The cell of {labels.get(point, point)!r}, in the same network ({cell['name']}):"
            )
            code += paragraphs([text], "text") + code_block("\n".join(equations))
    return code


def _frame(model: Mapping[str, Any]) -> list[str]:
    """Return the equations around the cell: embedding, normaliser, readout, emission."""
    lines = first_block(part_docstring("model", str(model["name"])))
    norm = str(model.get("norm", "none"))
    if norm != "none":
        lines += [f"N(x) = {rule}" for rule in [_normaliser(norm)] if rule]
    else:
        lines += ["N(x) = x"]
    emission = model.get("emission") or {}
    rules = first_block(part_docstring("EMISSIONS", str(emission.get("name"))))
    size = emission.get("components")
    head = f"emission(y): {emission.get('name')}" + f", {size} components z" * bool(size)
    return [*lines, f"e(s): a learned vector of {model.get('width')} numbers", "", head, *rules]


def _normaliser(norm: str) -> str:
    """Return the right side of a normaliser, from the table in its module's docstring."""
    text = (FUNCTIONS / "normalise.py").read_text(encoding="utf-8")
    found = re.search(rf"^    {re.escape(norm)} {{2,}}(.*)$", text, re.MULTILINE)
    return re.sub(" {2,}", "   ", found[1].replace("**", "")) if found else ""


def _other_cells(
    models: Mapping[str, Mapping[str, Any]], reference: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the first point with each other cell -> the cell, without cuts and switches."""
    found: dict[str, dict[str, Any]] = {}
    seen = {json.dumps(reference["cell"].get("name"))}
    for point, model in models.items():
        cell = model.get("cell")
        if isinstance(cell, dict) and (name := json.dumps(cell.get("name"))) not in seen:
            seen.add(name)
            found[point] = {"name": cell["name"]}
    return found


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


def audit_section(path: Path, folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return the audit results of all points, from their training, and commands for two models.

    The two are the best one that neither leaks nor is a count model, and the reference.
    """
    counts, programs = count_points(folder), program_points(folder)
    leaking = ranked.filter(pl.col("leaks") != "")
    lines = [f"{row['label']}: {row['leaks']}" for row in leaking.to_dicts()]
    models = ranked.filter(pl.col("score").is_not_null() & ~pl.col("point").is_in(programs))
    audited = models.height
    passed = f"{audited - len(lines)} of {audited} points passed the audit when they were trained"
    if programs:
        lines.append(f"{len(programs)} points train programs of the user, which are not audited")
    own = models.filter(pl.col("leaks") == "", ~pl.col("point").is_in(counts)).drop_nulls("rank")
    code = ""
    shown = pl.concat([own.head(1), own.filter("reference")]).unique(maintain_order=True)
    store = store_address(portable(path, folder.study))
    for row in shown.to_dicts():
        run = shlex.quote(f"{store}/{folder.study['chosen'][row['point']]['runs'][0]}")
        code += f"# {row['label']}\nlmzoo audit {run}\nlmzoo sample {run}\n"
    return paragraphs([passed, *lines], "text") + (code_block(code.strip()) if code else "")


BASELINE_ORDERS = (1, FIVE_GRAM["order"], TEXT_BASELINE["order"])
"""Orders of the count models to which absolute losses are compared."""


def point_models(folder: StudyFolder) -> dict[str, dict[str, Any]]:
    """Return point -> config of its model, from its first run."""
    models = folder.runs.select("point", "model").unique("point", keep="first").collect()
    return {point: json.loads(text) for point, text in models.iter_rows()}


def cut_points(folder: StudyFolder) -> list[str]:
    """Return the points whose cell is the reference's with cuts."""
    models = point_models(folder)
    reference = folder.study.get("reference", "")
    cell = models.get(reference, {}).get("cell") or {}
    return [
        point
        for point, model in models.items()
        if point != reference
        and (own := model.get("cell") or {}).get("cuts")
        and own.get("name") == cell.get("name")
    ]


def count_points(folder: StudyFolder) -> list[str]:
    """Return the points whose model is a table of counts."""
    models = point_models(folder)
    return [point for point, model in models.items() if model.get("name") == FIVE_GRAM["name"]]


def program_points(folder: StudyFolder) -> list[str]:
    """Return the points that train a function or a command."""
    return folder.runs.drop_nulls("program").select("point").unique().collect()["point"].to_list()


def baseline_points(folder: StudyFolder) -> list[str]:
    """Return the unigram and 5-gram count models."""
    models = point_models(folder)
    return [p for p in count_points(folder) if models[p].get("order") in BASELINE_ORDERS]
