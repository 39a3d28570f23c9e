"""The verdicts of a study as lists: what each means, and its points.

The kinds of a study's points: cuts of the reference's cell, count models, baselines.
"""

import json
from collections.abc import Collection, Sequence
from html import escape
from typing import Any

from lmzoo.analysis.records.load import StudyFolder
from lmzoo.analysis.tables.baseline_comparison import FIVE_GRAM
from lmzoo.analysis.text.verdict_lines import VerdictGroup
from lmzoo.statistics.verdicts import BETTER, EQUIVALENT, UNDECIDED, WORSE

MOST = 20
"""Points of a verdict that a list has; the ranking has all."""
MEANINGS = {
    BETTER: "The loss is lower: p < 0.05 after the correction for the number of points.",
    EQUIVALENT: "The difference is shown to be smaller than the margin (two one-sided tests at "
    "5 %). It need not be zero.",
    WORSE: "The loss is higher: p < 0.05 after the correction for the number of points. The "
    "difference is not shown to be smaller than the margin.",
    UNDECIDED: "Neither a difference nor equivalence is shown. What is needed would decide the "
    "point in four of five repetitions, if the measured difference is the true one.",
}


def answer_lists(groups: Sequence[VerdictGroup], cuts: Collection[str]) -> str:
    """Return the lists as HTML; where a verdict has cuts and other models, cuts come first."""
    return "".join(_list(group, cuts) for group in groups)


def _list(group: VerdictGroup, cuts: Collection[str]) -> str:
    own, others = (
        [
            text
            for text, point in zip(group.points, group.ids, strict=True)
            if (point in cuts) is kind
        ]
        for kind in (True, False)
    )
    both = bool(own and others)
    lists = "".join(
        (f"<p class='kind'>{title}</p>" if both else "") + _items(texts)
        for title, texts in (("cuts", own), ("other models", others))
        if texts
    )
    return (
        f'<div class="answer {group.verdict}"><p>{escape(group.head)}</p>'
        f'<p class="note">{escape(MEANINGS[group.verdict])}</p>{lists}</div>\n'
    )


def _items(texts: Sequence[str]) -> str:
    rest = [f"and {len(texts) - MOST} more, in the ranking"] if len(texts) > MOST else []
    items = "".join(f"<li>{escape(text)}</li>" for text in [*texts[:MOST], *rest])
    return f"<ul>{items}</ul>"


BASELINE_ORDERS = (1, FIVE_GRAM["order"])
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


def baseline_points(folder: StudyFolder) -> list[str]:
    """Return the unigram and 5-gram count models."""
    models = point_models(folder)
    return [p for p in count_points(folder) if models[p].get("order") in BASELINE_ORDERS]
