"""The kinds of a study's points: cuts of the reference's cell, count models, baselines."""

import json
from typing import Any

from lmzoo.analysis.baseline_comparison import FIVE_GRAM
from lmzoo.analysis.load import StudyFolder

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
