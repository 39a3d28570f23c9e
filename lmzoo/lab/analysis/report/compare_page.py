r"""The page that compares two studies, or one study made with two versions.

Points are matched by label, in the order of A's ranking. If both studies trained a point with the
same seeds on the same data, the difference is paired:

    difference = mean of b_s − a_s over the seeds s, with its t-interval

Where the chosen settings differ, the variance of the tuning in A and in B is added. Otherwise

    difference = B − A,   half-width = √(h_A² + h_B²)          h: half-width of a loss's interval
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.confirm_runs import confirm_runs, losses_by_seed
from lmzoo.lab.analysis.formatting import MISSING, format_mean
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.render import TextTable
from lmzoo.lab.analysis.report.forest import difference_chart, forest_chart
from lmzoo.lab.analysis.report.html import (
    Section,
    chart_figure,
    code_block,
    html_page,
    html_table,
    paragraphs,
)
from lmzoo.lab.analysis.report.recipe import reproduce_commands
from lmzoo.lab.statistics.intervals import paired_difference

NAMES = ("A", "B")
NUMBERS = ("difference", "low", "high")
SeedLosses = Mapping[str, Mapping[int, float]]
"""Point -> seed -> test loss."""


def render_two(paths: Sequence[Path], metric: str = "token") -> str:
    """Return the page of two studies.

    Raises:
        UserError: The studies have no ranked point in common, or one cannot be ranked.
    """
    folders = [load_study(path) for path in paths]
    ranked = [rank_points(f.runs, f.events, f.study, metric=metric) for f in folders]
    for folder, frame in zip(folders, ranked, strict=True):
        tuning = {key: own.get("tuning_sd") for key, own in folder.study["chosen"].items()}
        sds = [tuning.get(point) for point in frame["point"]]
        frame.insert_column(0, pl.Series("tuning_sd", sds, pl.Float64))
    seeds = [seed_losses(folder, metric) for folder in folders]
    rows = matched_rows(ranked[0], ranked[1], seeds)
    if not rows:
        raise UserError(f"{paths[0]} and {paths[1]} have no ranked point of the same label")
    lead = "".join(
        paragraphs([f"{name}: {path}, {f.study['question']}"])
        for name, path, f in zip(NAMES, paths, folders, strict=True)
    )
    sections = [Section("Differences", _differences(rows, folders))]
    for name, path, folder, frame in zip(NAMES, paths, folders, ranked, strict=True):
        chart = forest_chart(frame)
        body = chart_figure(chart) if chart else ""
        body += code_block(reproduce_commands(path, folder))
        sections.append(Section(f"Study {name}", body))
    return html_page(f"{folders[0].study['name']}: two studies", lead, sections)


def matched_rows(
    first: pl.DataFrame, second: pl.DataFrame, seeds: Sequence[SeedLosses] = ({}, {})
) -> list[dict[str, Any]]:
    """Return label, rankings a and b, difference B − A with its interval, paired, of common points.

    Args:
        first: the ranking of A.
        second: the ranking of B.
        seeds: the losses of each seed of the points of A, and of B (`seed_losses`).
    """
    others = {row["label"]: row for row in second.to_dicts() if row["loss"] is not None}
    rows = []
    for a in first.to_dicts():
        b = others.get(a["label"])
        if a["loss"] is None or b is None:
            continue
        own = [of.get(row["point"], {}) for of, row in zip(seeds, (a, b), strict=True)]
        paired = set(own[0]) == set(own[1]) and len(own[0]) > 1
        paired = paired and a["fingerprint"] == b["fingerprint"]
        low, high = _paired(a, b, own) if paired else _unpaired(a, b)
        numbers = {"difference": b["loss"] - a["loss"], "low": low, "high": high}
        rows.append({"label": a["label"], "a": a, "b": b, **numbers, "paired": paired})
    return rows


def seed_losses(folder: StudyFolder, metric: str) -> SeedLosses:
    """Return point -> seed -> test loss of the confirm runs; a diverged run has none."""
    confirm, _ = confirm_runs(folder.runs, folder.events, folder.study, metric)
    return losses_by_seed(confirm.filter(pl.col("loss").is_finite()))


def _paired(
    a: Mapping[str, Any], b: Mapping[str, Any], seeds: Sequence[Mapping[int, float]]
) -> tuple[float, float]:
    values = [[of[seed] for seed in sorted(of)] for of in seeds]
    same = a["setting"] == b["setting"]
    variance = 0.0 if same else sum((row.get("tuning_sd") or 0.0) ** 2 for row in (a, b))
    found = paired_difference(values[1], values[0], variance=variance)
    return float(found.low), float(found.high)


def _unpaired(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[float | None, float | None]:
    if a["high"] is None or b["high"] is None:
        return None, None
    half = math.hypot(a["high"] - a["loss"], b["high"] - b["loss"])
    difference = b["loss"] - a["loss"]
    return difference - half, difference + half


def _differences(rows: list[dict[str, Any]], folders: Sequence[StudyFolder]) -> str:
    cells = [
        (
            row["label"],
            *(format_mean(row[x]["loss"], row[x]["high"], ".3f") for x in "ab"),
            format_mean(row["difference"], row["high"], "+.3f"),
            "paired" if row["paired"] else "not paired",
            *(row[x]["verdict"] or MISSING for x in "ab"),
        )
        for row in rows
    ]
    header = ("point", "loss A", "loss B", "B − A", "seeds", "verdict A", "verdict B")
    text = frozenset({"point", "seeds", "verdict A", "verdict B"})
    table = html_table(TextTable("test loss in both studies", header, cells, text), kind="sortable")
    chart = chart_figure(_chart(rows))
    count = sum(row["paired"] for row in rows)
    note = paragraphs(
        [
            f"{count} of {len(rows)} differences are paired: both studies trained the point with "
            "the same seeds on the same data. The intervals of the others are wider."
        ]
    )
    return chart + table + note + _options(*(f.study for f in folders))


def _chart(rows: list[dict[str, Any]]) -> Any:
    values = [{key: row[key] for key in ("label", *NUMBERS, "paired")} for row in rows]
    heading = alt.TitleParams(
        "Difference of each point between the studies, B less A, 95 % intervals", anchor="start"
    )
    colour = alt.value("var(--fg)")
    return difference_chart(values, heading, "loss in B less loss in A", "paired:N", colour)


def _options(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Return the options in which the studies differ as a table; a line if there are none."""
    a, b = ({**s.get("budget", {}), **s.get("asked", {})} for s in (first, second))
    rows = [
        (key, str(a.get(key, MISSING)), str(b.get(key, MISSING)))
        for key in dict.fromkeys([*a, *b])
        if a.get(key) != b.get(key)
    ]
    if not rows:
        return paragraphs(["The studies have the same options."])
    title = "options that differ"
    return html_table(TextTable(title, ("option", "A", "B"), rows, frozenset({"option", "A", "B"})))
