"""How to read a study's verdicts: paragraphs on margin, losses, intervals and tuning."""

import json
from math import exp

import polars as pl

from lmzoo.lab.analysis.curve_data import learning_curves, response_curves, search_ranges
from lmzoo.lab.analysis.formatting import format_number
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.ranking import baselines
from lmzoo.lab.analysis.units import METRIC, UNITS, effect_words
from lmzoo.lab.statistics.compared import read_looks

FIELD_WORDS = {"recipe.lr": "learning rate (recipe.lr)"}
"""Searched field -> its name in a sentence; other fields have the names of their configs."""


def summary(folder: StudyFolder, ranked: pl.DataFrame) -> list[str]:
    """Return the paragraphs: the points and the margin, the losses, the intervals, the tuning."""
    found = (_points(ranked), _losses(folder, ranked), _intervals(folder, ranked), _choice(folder))
    return [text for text in found if text]


def _points(ranked: pl.DataFrame) -> str:
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
        pl.col("point").is_in(baselines(folder.study)),
        pl.col("loss").is_not_null(),
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
    fields = _fields(folder)
    choice = f" and the choice of the {fields}" if fields else ""
    looks = [str(look.seeds) for look in read_looks(folder.study.get("looks"), 1)]
    again = f" They account for the looks after {' and '.join(looks)} seeds." * (len(looks) > 1)
    return (
        f"Ranges are 95 % intervals of one difference, over {of_seeds}. They cover the "
        f"seeds{choice}. They do not cover the choice of the test data, nor what the study keeps "
        "fixed. A verdict also corrects for the number of points (Holm), so the range of an "
        f"undecided point may exclude 0.{again}"
    )


def _choice(folder: StudyFolder) -> str:
    """Return the rule by which settings are chosen; "" without a search."""
    samples, fields = folder.study["budget"]["samples"], [*search_ranges(folder.study)]
    if samples < 2 or not fields:
        return ""
    is_fitted = len(fields) == 1 and not response_curves(folder, fields[0]).is_empty()
    rule = (
        "the one with the lowest value of a curve that is fitted over the runs of all points, "
        "because a single run is noisy"
        if is_fitted
        else "the one with the lowest validation loss"
    )
    runs = f"{samples} tuning runs with one seed each"
    return f"The {_fields(folder)} of each point is chosen from {runs}: {rule}."


def _fields(folder: StudyFolder) -> str:
    return " and ".join(FIELD_WORDS.get(name, name) for name in search_ranges(folder.study))
