"""How the settings of a study's points were chosen, in sentences."""

import json

import polars as pl

from lmzoo.analysis.records.curve_data import (
    epochs_of,
    numeric_fields,
    stopped_beside,
    tuned_settings,
)
from lmzoo.analysis.records.load import StudyFolder
from lmzoo.analysis.records.response_curves import response_curves
from lmzoo.analysis.records.search_ranges import search_ranges

FIELD_WORDS = {"recipe.lr": "learning rate (recipe.lr)"}
"""Searched field -> its name in a sentence; other fields have the names of their configs."""


def choice_sentences(folder: StudyFolder) -> list[str]:
    """Return the rule of the choice, and at how many points its result is surprising.

    It is surprising where the chosen setting is not the one with the lowest measured loss, or where
    early stopping ended all settings on one side of it.
    """
    fields = search_ranges(folder.study)
    samples = folder.study["budget"]["samples"]
    if samples < 2 or not fields:
        return []
    names = " and ".join(FIELD_WORDS.get(name, name) for name in fields)
    one = next(iter(fields)) if len(fields) == 1 else ""
    fitted = bool(one) and not response_curves(folder, one).is_empty()
    rule = (
        "the one with the lowest value of a curve that is fitted over the runs of all points, "
        "because a single run is noisy"
        if fitted
        else "the one with the lowest validation loss"
    )
    lines = [
        f"The {names} of each point is chosen from {samples} tuning runs with one seed each: "
        f"{rule}."
    ]
    other, points = _not_the_lowest(folder)
    if other:
        lines.append(
            f"At {other} of {points} points the chosen value is not the one with the lowest "
            "measured loss."
        )
    elif points:
        lines.append("At every point it also has the lowest measured loss.")
    for name in numeric_fields(folder):
        lines += stopped_beside(tuned_settings(folder, name), name)
    return lines


def _not_the_lowest(folder: StudyFolder) -> tuple[int, int]:
    """Return at how many points another finished tuning run has a lower loss, and of how many."""
    runs = epochs_of(folder, "tune").filter(pl.col("status") == "finished")
    losses = runs.group_by("point", "setting").agg(pl.col("valid_token").min()).drop_nulls()
    chosen = folder.study.get("chosen", {})
    other = points = 0
    for (point,), part in losses.group_by("point"):
        setting = chosen.get(point, {}).get("setting")
        own = [loss for text, loss in part.drop("point").iter_rows() if json.loads(text) == setting]
        points += bool(own)
        other += bool(own) and min(own) > part["valid_token"].min()
    return other, points
