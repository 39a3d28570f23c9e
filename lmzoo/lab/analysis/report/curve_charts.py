"""Draw the curves of a study from the frames of `load.py`.

A point has the same colour in all charts (`colours.py`). Where points have colours of their own,
curves have names at their ends; `page.js` puts a legend in their place on a phone.
"""

import math
from typing import Any

import polars as pl
from polars import DataFrame, Float64, Series, String, col

from lmzoo.base.plain import FieldsDict
from lmzoo.lab.analysis.formatting import UNITS
from lmzoo.lab.analysis.frames import run_frame
from lmzoo.lab.analysis.load import (
    StudyFolder,
    distinct_ranges,
    is_maximized,
    learning_curves,
)
from lmzoo.lab.analysis.report.colours import (
    BASELINE,
    HEIGHT,
    MANY,
    REFERENCE,
    Hues,
    chart_of,
    hues_of,
    near_limit,
    short_label,
)
from lmzoo.lab.analysis.report.factor_charts import (
    factors_of,
    heat_map,
    importance_chart,
    importances,
)
from lmzoo.lab.analysis.report.point_charts import cost_charts, seeds_chart
from lmzoo.lab.analysis.report.setting_chart import setting_chart

MOST_ROWS = 40
"""Points that a chart with a row for each can have."""
SUFFIXES = {"token": "", "sentence": "_sentence"}
"""Metric -> the end of the names of its columns."""
LINE = 13
"""Pixels of a line of names."""
ENDS = "ends"
"""The layers of the names, and the mark of a chart that has them."""
TOP = {
    "orient": "top",
    "title": None,
    "symbolType": "stroke",
    "symbolSize": 300,
    "symbolOpacity": 1,
}
"""The legend of verdicts above curves that have names."""


def curve_charts(folder: StudyFolder, ranked: DataFrame) -> FieldsDict:
    """Return file stem -> chart, for every curve that the study has data for."""
    hues = hues_of(ranked)
    unit = ranked["metric"].item(0)
    metric = "token"
    if unit == "sentence":
        metric = unit
    # Validation texts have other sizes than the test text, so curves stay in nats.
    what = unit
    if unit in UNITS:
        what = UNITS[metric]
    charts: FieldsDict = {}
    learning = learning_curves(folder, metric)
    if learning.height:
        charts["curves"] = learning_chart(learning, hues, what)
    runs = run_frame(folder)
    tuned = runs.filter(stage="tune").drop_nulls(["label", "epochs"])
    tuned = tuned.rename({f"valid{SUFFIXES[metric]}": "loss", "epochs": "epoch"})
    sign = 1
    if is_maximized(folder.study):
        sign = -1
    searched = []
    for name, ranges in distinct_ranges(folder.study).items():
        if name not in tuned.columns:
            continue
        searched.append(name)
        if tuned[name].count() and all("low" in own for own in ranges):
            is_log = all(own.get("log") for own in ranges)
            settings = _settings(folder, tuned, name)
            charts[f"tuning-{name}"] = setting_chart(settings, hues, name, what, sign, log=is_log)
    # Losses of other data are not comparable.
    shown = ranked.filter(fingerprint=ranked["fingerprint"].item(0))
    charts |= cost_charts(shown, hues, UNITS.get(unit, unit))
    shares = importances(tuned, searched)
    if shares:
        charts["importance"] = importance_chart(shares, len(tuned.filter(status="finished")))
    own = shown.filter(~col("is_baseline")).drop_nulls("loss")
    factors = factors_of(folder, own["point"].to_list())
    if factors:
        charts["factors"] = heat_map(factors, own["loss"].to_list(), what)
    losses = runs.filter("chosen").rename({f"test{SUFFIXES[metric]}": "loss"})
    # A run that diverged may have no test.
    losses = losses.select("label", "seed", "loss").drop_nulls()
    if losses["seed"].n_unique() > 1 and len(hues.groups) <= MOST_ROWS:
        charts["seeds"] = seeds_chart(losses, hues, what)
    return charts


def _settings(folder: StudyFolder, tuned: DataFrame, name: str) -> DataFrame:
    """Return label, value, loss, epoch, status, chosen of each run that tried a value of a field.

    A pruned run counts with its last loss. A diverged one has a row without a loss.
    """
    chosen = folder.study.get("chosen", {})
    values = {
        point["label"]: chosen[point["id"]]["setting"].get(name)
        for point in folder.study["points"]
        if point["id"] in chosen
    }
    value = col(name).cast(Float64)
    known = col("label").replace_strict(values, default=None, return_dtype=Float64)
    is_chosen = value == known
    own = tuned.select("label", "loss", "epoch", "status", value=value, chosen=is_chosen)
    return own.drop_nulls("value").sort("label", "value")


def learning_chart(frame: DataFrame, hues: Hues, what: str) -> Any:
    """Return the mean of what was validated by epoch, with its interval as a band."""
    epochs = sorted(set(frame["epoch"]))
    frame, said = _baselines(frame, hues, epochs)
    low, high, far, outside = _compared(frame, epochs)
    names = None
    legend: Any = hues.legend(frame["label"])
    if len(hues.groups) < HEIGHT // LINE:
        names = _names(frame, hues, low, high)
        if hues.field == "group":
            legend = TOP
    head = "mean over seeds, 95 % interval"
    own = list(hues.groups)
    few = len(own) <= MANY
    if not few:
        head += " of the reference"
        own = [label for label, group in hues.groups.items() if group == REFERENCE]
    # The band of a point outside the axis would cover all others.
    inside = [label for label in own if label not in far]
    banded = frame.filter(col("label").is_in(inside))
    return chart_of(
        "curves",
        "learning curves",
        [head] + said + outside,
        epochs=epochs,
        what=what,
        low=low,
        high=high,
        few=few,
        hues=hues,
        legend=legend,
        bands=hues.rows(banded),
        curves=hues.rows(frame),
        names=names,
    )


def _names(frame: DataFrame, hues: Hues, low: float, high: float) -> list[FieldsDict]:
    """Return the names of curves for their ends, moved apart where curves end together."""
    gap = (high - low) * LINE / HEIGHT
    rows = _ends(frame).filter(col("loss") <= high)
    rows = rows.sort("loss")
    places = []
    bottom = -math.inf
    # Upwards from the lowest curve, then down again from the upper end of the axis.
    for loss in rows["loss"]:
        places.append(max(loss, bottom))
        bottom = places[-1] + gap
    top = high
    for i in reversed(range(len(places))):
        places[i] = min(places[i], top)
        top = places[i] - gap
    place = Series(places, dtype=Float64)
    shown = Series(list(map(short_label, rows["label"])), dtype=String)
    named = rows.select("label", "loss", place=place, shown=shown)
    return hues.rows(named)


def _ends(frame: DataFrame) -> DataFrame:
    """Return the last row of each curve."""
    by_label = frame.sort("epoch").group_by("label", maintain_order=True)
    return by_label.last()


def _baselines(frame: DataFrame, hues: Hues, epochs: list[int]) -> tuple[DataFrame, list[str]]:
    """Draw baselines of one epoch as level lines; leave out those far above the other points."""
    baselines = [label for label, group in hues.groups.items() if group == BASELINE]
    is_flat = col("label").is_in(baselines) & (pl.len().over("label") == 1)
    level = frame.filter(is_flat)
    others = frame.filter(~is_flat)
    if level.is_empty() or others.is_empty():
        return frame, []
    low: Any = others["loss"].min()
    high: Any = others["loss"].max()
    limit = high + 0.5 * (high - low)
    near = col("loss") <= limit
    # One epoch is a dot: a line across the chart needs two.
    ends = DataFrame({"epoch": [epochs[0], epochs[-1]]})
    ends = ends.cast(frame.schema["epoch"])
    both = level.filter(near).drop("epoch").join(ends, how="cross")
    lines = both.select(frame.columns)
    notes = []
    if lines.height:
        notes.append("level lines: baselines, which are not trained by epochs")
    far = _listed(level.filter(~near), ".3f")
    if far:
        notes.append(f"not shown: {far}")
    return pl.concat([others, lines]), notes


def _listed(rows: DataFrame, form: str) -> str:
    return ", ".join(f"{row['label']} {row['loss']:{form}}" for row in rows.to_dicts())


def _compared(frame: DataFrame, epochs: list[int]) -> tuple[float, float, list[str], list[str]]:
    """Return the ends of the axis, the points outside, and what notes say about values outside.

    The axis has the means after the first quarter of the epochs, in which all curves change far
    more than they differ later, and bands up to a quarter of its height beyond them. A point far
    from all others is outside.
    """
    first = epochs[len(epochs) // 4]
    from_median = col("loss") - pl.median("loss")
    last = _ends(frame).with_columns(distance=from_median.abs())
    apart = last.filter(col("distance") > 0)["distance"]
    # One seed that blew up would make all other curves one line.
    limit = near_limit(apart.to_list() or [0.0])
    far = last.filter(col("distance") > limit)
    near = frame.filter(~col("label").is_in(far["label"].implode()))
    late = near.filter(col("epoch") >= first)
    low = _number(late["loss"].min())
    high = _number(late["loss"].max())
    least = _number(late["low"].min())
    most = _number(late["high"].max())
    # Equal curves need an axis with a height, too.
    room = 0.25 * (high - low) or 0.1
    margin = 0.12 * room
    # An end that is not known is NaN, which `min` and `max` pass over as their second argument.
    bottom = max(low - room, min(low, least)) - margin
    top = min(high + room, max(high, most)) + margin
    is_outside = (col("loss") > top) | (col("loss") < bottom)
    beyond = near.filter(is_outside)["epoch"].max()
    notes = []
    if beyond is not None:
        notes.append(f"outside the axis: values up to epoch {beyond}")
    # A curve that is not drawn has its number in the notes.
    if far.height:
        notes.append(f"outside the axis: {_listed(far, '.4g')}")
    # A band that is cut without a word looks narrower than it is.
    if least < bottom or most > top:
        notes.append("some bands end outside the axis")
    return bottom, top, far["label"].to_list(), notes


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    return float(value)
