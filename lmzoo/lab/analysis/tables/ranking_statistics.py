"""Add means, differences, verdicts and ranks to the points of one table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmzoo.lab.analysis.tables.baseline_comparison import add_baseline_columns
from lmzoo.lab.statistics.compared import MARGIN, compared, read_looks
from lmzoo.lab.statistics.contrasts import unfair
from lmzoo.lab.statistics.intervals import Array
from lmzoo.lab.statistics.noise import point_intervals
from lmzoo.lab.statistics.ranks import rank_intervals

BASELINE_LABELS = ("unigram count", "Kneser-Ney 5-gram")
"""Labels of the baselines in records of earlier versions, which do not say what is a baseline."""


def add_statistics(
    part: pl.DataFrame, wide: pl.DataFrame, study: Mapping[str, Any]
) -> pl.DataFrame:
    """Return the points of one table with the columns of their statistics; NaN becomes null.

    Args:
        part: the points, with the columns point, label and leaks.
        wide: the losses of all points, one column per seed; infinite for a diverged run.
        study: the content of `study.json`.
    """
    seeds = part.select("point").join(wide, on="point", how="left", maintain_order="left")
    losses = seeds.drop("point").cast(pl.Float64).to_numpy()
    points = part["point"].to_list()
    chosen = study.get("chosen", {})
    tuning = np.array([chosen.get(p, {}).get("tuning_sd") or 0.0 for p in points])
    reference = part["point"] == study.get("reference", "")
    family = asked_contrasts(part, study)
    silent = untuned(part, study)
    sharing = family | silent | reference.to_numpy()
    interval = point_intervals(losses, sharing)
    rank_low, rank_high = rank_intervals(losses, tuning, family=sharing)
    columns: dict[str, Any] = {
        "loss": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "rank_low": rank_low,
        "rank_high": rank_high,
        "rank": order(losses, interval.mean),
        "reference": reference,
        "untuned": silent,
        "margin": np.full(len(part), float(study.get("margin", MARGIN))),
        **_against_reference(losses, tuning, family, silent, reference, study),
    }
    whole = pl.col("rank_low", "rank_high", "seeds_needed", "sign").cast(pl.Int64)
    rank = pl.col("rank").rank("min").cast(pl.Int64)
    part = part.hstack(pl.DataFrame(columns).fill_nan(None).with_columns(whole, rank))
    return add_baseline_columns(part, losses, tuning)


def _against_reference(
    losses: Array,
    tuning: Array,
    family: NDArray[np.bool_],
    silent: NDArray[np.bool_],
    reference: pl.Series,
    study: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the columns of the differences; null in a table without the reference."""
    P, there = len(losses), bool(reference.any())
    c = compared(
        losses if there else np.full_like(losses, np.nan),
        int(reference.arg_max() or 0),
        family=family,
        silent=silent,
        tuning_sd=tuning,
        looks=read_looks(study.get("looks"), losses.shape[1]),
        margin=float(study.get("margin", MARGIN)),
    )
    words = [str(word) or None for word in c.verdict] if there else [None] * P
    return {
        "difference": c.mean,
        "difference_low": c.low,
        "difference_high": c.high,
        "p_raw": c.p_raw,
        "p": c.p,
        "verdict": pl.Series(words, dtype=pl.String),
        "sign": c.sign,
        "probability_worse": c.worse,
        "probability_within": c.within,
        "probability_better": c.better,
        "p_diverged": c.p_diverged,
        "seeds_needed": c.seeds_needed,
        "needs_tuning": c.needs_tuning,
        "shared": c.shared,
        "noisy": c.noisy,
    }


def asked_contrasts(part: pl.DataFrame, study: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return the points compared: all but the reference, baselines, leaking and untuned rows."""
    return _honest(part, study) & ~untuned(part, study)


def _honest(part: pl.DataFrame, study: Mapping[str, Any]) -> NDArray[np.bool_]:
    leaks = (part["leaks"].fill_null("") != "").to_numpy()
    outside = [*baselines(study), study.get("reference", "")]
    return ~leaks & ~part["point"].is_in(outside).to_numpy()


def untuned(part: pl.DataFrame, study: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which points have another architecture than the reference, at one untuned setting."""
    there = part["point"] == study.get("reference", "")
    if not there.any():
        return np.zeros(len(part), bool)
    several = study["budget"]["samples"] > 1
    searches = {p["id"]: p.get("search", study["search"]) for p in study["points"]}
    counts = (part["parameters"] == 0).fill_null(value=False)
    tuned = [
        is_count or (several and bool(searches[point]))
        for point, is_count in zip(part["point"], counts, strict=True)
    ]
    names = part["architecture"].fill_null("").to_list()
    return _honest(part, study) & unfair(names, tuned, int(there.arg_max() or 0))


def baselines(study: Mapping[str, Any]) -> list[str]:
    """Return the points that the study added as baselines."""
    return [
        point["id"]
        for point in study["points"]
        if point.get("baseline", point["label"] in BASELINE_LABELS)
    ]


def order(losses: Array, mean: Array) -> Array:
    """Return numbers that sort the points: the mean, above all others with a diverged run."""
    finite = np.where(np.isfinite(losses), losses, np.nan)
    if np.isnan(finite).all():
        return np.full(len(losses), np.nan)
    diverged = np.isposinf(losses).any(1)
    return mean + np.where(diverged, np.nanmax(finite) - np.nanmin(finite) + 1, 0)
