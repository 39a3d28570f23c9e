"""Add means, differences, verdicts and ranks to the points of one table."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from lmzoo.analysis.tables.baseline_comparison import FIVE_GRAM
from lmzoo.statistics.contrasts import contrasts
from lmzoo.statistics.intervals import Array
from lmzoo.statistics.moderation import moderated_intervals
from lmzoo.statistics.ranks import rank_intervals
from lmzoo.statistics.sequential import more_seeds
from lmzoo.statistics.verdicts import MARGIN, UNDECIDED, verdicts


def add_statistics(
    part: pl.DataFrame, wide: pl.DataFrame, study: Mapping[str, Any]
) -> pl.DataFrame:
    """Return the points of one table with the columns of their statistics; NaN becomes null.

    Args:
        part: the points, with the columns point, model, leaks and confirm_diverged.
        wide: the losses of all points, one column per seed; infinite for a diverged run.
        study: the content of `study.json`. Its `looks` are the numbers of seeds after which the
            sweep looked; its `tuning_sd` of a chosen point and its `margin` are optional.
    """
    seeds = part.select("point").join(wide, on="point", how="left", maintain_order="left")
    losses = seeds.drop("point").cast(pl.Float64).to_numpy()
    points = part["point"].to_list()
    chosen = study.get("chosen", {})
    tuning = np.array([chosen.get(p, {}).get("tuning_sd") or 0.0 for p in points])
    interval = moderated_intervals(losses)
    rank_low, rank_high = rank_intervals(losses, tuning)
    is_reference = part["point"] == study.get("reference", "")
    columns: dict[str, Any] = {
        "loss": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "rank_low": rank_low,
        "rank_high": rank_high,
        "rank": _order(losses),
        "reference": is_reference,
        "margin": np.full(len(part), float(study.get("margin", MARGIN))),
        **_against_reference(part, losses, tuning, study),
    }
    whole = pl.col("rank_low", "rank_high", "seeds_needed").cast(pl.Int64)
    rank = pl.col("rank").rank("min").cast(pl.Int64)
    return part.hstack(pl.DataFrame(columns).fill_nan(None).with_columns(whole, rank))


def _against_reference(
    part: pl.DataFrame, losses: Array, tuning: Array, study: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns of the differences; NaN in a table without the reference."""
    points = part["point"].to_list()
    names = ("difference", "difference_low", "difference_high", "p_raw", "better")
    if study.get("reference") not in points:
        nothing = np.full(len(part), np.nan)
        none = pl.Series([None] * len(part), dtype=pl.String)
        numbers = dict.fromkeys((*names, "p"), nothing)
        nobody = np.zeros(len(part), bool)
        return {**numbers, "verdict": none, "seeds_needed": nothing, "needs_tuning": nobody}
    reference = points.index(study["reference"])
    margin = float(study.get("margin", MARGIN))
    family = asked_contrasts(part, reference)
    c = contrasts(losses, reference, tuning)
    result = verdicts(c, margin, family)
    verdict, needed, needs_tuning = result.verdict, result.seeds_needed, result.needs_tuning
    if study.get("looks"):
        looked = more_seeds(losses, reference, study["looks"], margin, tuning, family).verdict
        verdict = np.where(looked == "", verdict, looked)
        needed = np.where(verdict == UNDECIDED, needed, np.nan)
        needs_tuning = needs_tuning & (verdict == UNDECIDED)
    numbers = dict(zip(names, (c.mean, c.low, c.high, c.p, c.better), strict=True))
    words = pl.Series([str(word) or None for word in verdict], dtype=pl.String)
    needs = {"seeds_needed": needed, "needs_tuning": needs_tuning}
    return {**numbers, "p": result.p, "verdict": words, **needs}


def asked_contrasts(part: pl.DataFrame, reference: int) -> np.ndarray:
    """Return which points are in Holm's family: all but the reference, baselines, leaking rows."""
    models = [json.loads(text) if text else {} for text in part["model"]]
    count = np.array([model.get("name") == FIVE_GRAM["name"] for model in models], bool)
    leaks = (part["leaks"].fill_null("") != "").to_numpy()
    return ~count & ~leaks & (np.arange(len(part)) != reference)


def _order(losses: Array) -> Array:
    """Return numbers that sort the points: the mean, above all others with a diverged run."""
    finite = np.where(np.isfinite(losses), losses, np.nan)
    if np.isnan(finite).all():
        return np.full(len(losses), np.nan)
    diverged = np.isposinf(losses).any(1)
    above = np.nanmax(finite) - np.nanmin(finite) + 1
    return moderated_intervals(losses).mean + np.where(diverged, above, 0)
