"""The answer of a study: its verdicts as lists, and paragraphs on losses, intervals and choices."""

import json
from collections.abc import Collection, Sequence
from math import exp

import polars as pl

from lmzoo.lab.analysis.curve_data import (
    epochs_of,
    learning_curves,
    numeric_fields,
    response_curves,
    stopped_beside,
    tuned_settings,
)
from lmzoo.lab.analysis.formatting import format_number
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.report.html import macro
from lmzoo.lab.analysis.report.network import baseline_points
from lmzoo.lab.analysis.search_ranges import search_ranges
from lmzoo.lab.analysis.units import METRIC, UNITS, effect_words
from lmzoo.lab.analysis.verdict_lines import MEANINGS, VerdictGroup
from lmzoo.lab.statistics.compared import (
    read_looks,
)

LISTED = 20
"""Points of a verdict that a list has; the ranking has all."""
FIELD_WORDS = {"recipe.lr": "learning rate (recipe.lr)"}
"""Searched field -> its name in a sentence; other fields have the names of their configs."""


def summary(folder: StudyFolder, ranked: pl.DataFrame) -> list[str]:
    """Return the paragraphs: the points and the margin, the losses, the intervals, the tuning."""
    paragraphs = [
        _points(ranked),
        _losses(folder, ranked),
        _intervals(folder, ranked),
        " ".join(choice_sentences(folder)),
    ]
    return [text for text in paragraphs if text]


def _points(ranked: pl.DataFrame) -> str:
    """Return what a point, the reference and the margin are; "" without a verdict."""
    reference = ranked.filter("reference")["label"]
    if reference.is_empty() or not ranked["verdict"].count():
        return ""
    margin, metric = ranked["margin"].item(0), ranked["metric"].item(0)
    share = f": it is {100 * (exp(margin) - 1):.1f} % of the perplexity" * (metric in UNITS)
    return (
        "A point is one model with its training recipe, trained with several seeds. All points are "
        f"compared with the reference {reference.item(0)!r}. "
        f"The margin of {margin:g} {effect_words(metric)} is a choice of the study{share}."
    )


def _losses(folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return what the loss is of, and how good the reference is in absolute terms."""
    row = ranked.row(0, named=True)
    if row["score"] == METRIC:
        best = "higher" if (folder.study["asked"]["direction"]) == "maximize" else "lower"
        return f"The metric is what the programs of the study report; {best} is better."
    names = sorted({json.loads(corpus).get("name", "corpus") for corpus in set(ranked["corpus"])})
    loss = f"{row['split']} {UNITS[row['metric']]} on {' and '.join(names)}"
    text = f"The loss is the {loss}; lower is better."
    reference = ranked.filter("reference", pl.col("loss").is_not_null())
    if reference.is_empty() or row["metric"] != "token" or row["score"] not in ("exact", "bound"):
        return text
    own = reference.row(0, named=True)
    others = ranked.filter(
        pl.col("point").is_in(baseline_points(folder)),
        ~pl.col("reference") & pl.col("loss").is_not_null(),
        *(pl.col(key) == own[key] for key in ("score", "fingerprint")),
    )
    losses = [f"{other['label']} {other['loss']:.3f}" for other in others.to_dicts()]
    if own["floor"] is not None:
        losses.append(f"entropy of the source {own['floor']:.3f}, which no model can go below")
    ends = f" For comparison: {'; '.join(losses)}." if losses else ""
    ends += " Count models are not tuned and have no verdict." * bool(others.height)
    return (
        f"{text} {own['label']!r} has {own['loss']:.3f}, a perplexity of {exp(own['loss']):.2f}."
        f"{ends}{_last_epoch(folder, own['label'])}"
    )


def _last_epoch(folder: StudyFolder, label: str) -> str:
    """Return by how much the reference's validation loss changed in its last epoch."""
    curve = learning_curves(folder).filter(pl.col("label") == label).sort("epoch")
    if curve.height < 2:
        return ""
    before, after = curve["loss"].tail(2)
    change = format_number(after - before, "+.3f")
    return f" In the last of {curve['epoch'].max()} epochs its validation loss changed by {change}."


def _intervals(folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return what the intervals cover, and how they are related to the verdicts."""
    seeds = ranked["runs"].drop_nulls()
    low, high = (seeds.min(), seeds.max()) if len(seeds) else (0, 0)
    of_seeds = f"{low} seeds" if low == high else f"{low} to {high} seeds"
    fields = " and ".join(FIELD_WORDS.get(name, name) for name in search_ranges(folder.study))
    choice = f" and the choice of the {fields}" if fields else ""
    looks = [look.seeds for look in read_looks(folder.study.get("looks"), 1)]
    again = (
        f" The verdicts and intervals account for the looks after {' and '.join(map(str, looks))} "
        "seeds."
        if len(looks) > 1
        else ""
    )
    return (
        f"Ranges are 95 % intervals of one difference, over {of_seeds}. They cover the "
        f"seeds{choice}. They do not cover the choice of the test data, nor what the study keeps "
        "fixed. A verdict also corrects for the number of points (Holm), so the range of an "
        f"undecided point may exclude 0.{again}"
    )


def answer_lists(groups: Sequence[VerdictGroup], cuts: Collection[str]) -> str:
    """Return the verdicts as HTML; where one has cuts and other models, cuts come first."""
    html = ""
    for group in groups:
        lists: dict[str, list[str]] = {"cuts": [], "other models": []}
        for text, point in zip(group.points, group.ids, strict=True):
            lists["cuts" if point in cuts else "other models"].append(text)
        html += macro(
            "answer", group.verdict, group.head, _sentence(MEANINGS[group.verdict]), lists, LISTED
        )
    return html


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
    for (point,), tried in losses.group_by("point"):
        setting = chosen.get(point, {}).get("setting")
        own = [
            loss for text, loss in tried.drop("point").iter_rows() if json.loads(text) == setting
        ]
        points += bool(own)
        other += bool(own) and min(own) > tried["valid_token"].min()
    return other, points


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
