"""Draw the curves of a study with altair, from the frames of `load.py`.

A point has the same colour in all charts (`colours.py`). Where points have colours of their own,
curves have names at their ends; `page.js` puts a legend in their place on a phone.
"""

from typing import Any

import altair as alt
import polars as pl

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
    MANY,
    REFERENCE,
    Hues,
    hues_of,
    near_limit,
    short_label,
    titled,
)
from lmzoo.lab.analysis.report.factor_charts import (
    factors_of,
    heat_map,
    importance_chart,
    importances,
)
from lmzoo.lab.analysis.report.point_charts import cost_charts, seeds_chart
from lmzoo.lab.analysis.report.setting_chart import setting_chart

HEIGHT = 300
MOST_ROWS = 40
"""Points that a chart with a row for each can have."""
SUFFIXES = {"token": "", "sentence": "_sentence"}
"""Metric -> the end of the names of its columns."""
LINE, LEADER = 13, 30
"""Pixels of a line of names, and between the end of a curve and its name."""
ENDS = "ends"
"""The layers of the names, and the mark of a chart that has them."""


def curve_charts(folder: StudyFolder, ranked: pl.DataFrame) -> dict[str, Any]:
    """Return file stem -> chart, for every curve that the study has data for."""
    hues, unit = hues_of(ranked), ranked["metric"].item(0)
    metric = "sentence" if unit == "sentence" else "token"
    # Validation texts have other sizes than the test text, so curves stay in nats.
    what = unit
    if unit in UNITS:
        what = UNITS[metric]
    charts: dict[str, Any] = {}
    learning = learning_curves(folder, metric)
    if learning.height:
        charts["curves"] = learning_chart(learning, hues, what)
    runs = run_frame(folder)
    tuned = runs.filter(stage="tune").drop_nulls(["label", "epochs"])
    tuned = tuned.rename({f"valid{SUFFIXES[metric]}": "loss", "epochs": "epoch"})
    for name, ranges in distinct_ranges(folder.study).items():
        is_numeric = name in tuned.columns and all("low" in own for own in ranges)
        if is_numeric and tuned[name].count():
            sign = 1
            if is_maximized(folder.study):
                sign = -1
            is_log = all(own.get("log") for own in ranges)
            settings = _settings(folder, tuned, name)
            charts[f"tuning-{name}"] = setting_chart(settings, hues, name, what, sign, log=is_log)
    shown = ranked.filter(pl.col("fingerprint") == ranked["fingerprint"].item(0))
    charts |= cost_charts(shown, hues, UNITS.get(unit, unit))
    charts = {name: chart.properties(height=HEIGHT) for name, chart in charts.items()}
    searched = [name for name in distinct_ranges(folder.study) if name in tuned.columns]
    shares = importances(tuned, searched)
    if shares:
        charts["importance"] = importance_chart(shares, len(tuned.filter(status="finished")))
    own = shown.filter(~pl.col("is_baseline")).drop_nulls("loss")
    factors = factors_of(folder, own["point"].to_list())
    if factors:
        charts["factors"] = heat_map(factors, own["loss"].to_list(), what)
    losses = runs.filter("chosen").rename({f"test{SUFFIXES[metric]}": "loss"})
    losses = losses.select("label", "seed", "loss").drop_nulls()
    if losses["seed"].n_unique() > 1 and len(hues.groups) <= MOST_ROWS:
        charts["seeds"] = seeds_chart(losses, hues, what)
    return charts


def _settings(folder: StudyFolder, tuned: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return label, value, loss, epoch, status, chosen of each run that tried a value of a field.

    A pruned run counts with its last loss. A diverged one has a row without a loss.
    """
    chosen = folder.study.get("chosen", {})
    values = {
        point["label"]: chosen[point["id"]]["setting"].get(name)
        for point in folder.study["points"]
        if point["id"] in chosen
    }
    value = pl.col(name).cast(pl.Float64)
    known = pl.col("label").replace_strict(values, default=None, return_dtype=pl.Float64)
    own = tuned.select("label", "loss", "epoch", "status", value=value, chosen=value == known)
    return own.drop_nulls("value").sort("label", "value")


def learning_chart(frame: pl.DataFrame, hues: Hues, what: str) -> Any:
    """Return the mean of what was validated by epoch, with its interval as a band."""
    epochs = sorted(set(frame["epoch"]))
    frame, notes = _baselines(frame, hues, epochs)
    low, high, far, outside = _compared(frame, epochs)
    notes += outside
    axis = alt.Axis(tickMinStep=1, format="d")
    axis = alt.Axis(values=epochs, format="d") if len(epochs) <= 20 else axis
    named = len(hues.groups) < HEIGHT // LINE
    colour = hues.colour(frame["label"])
    if named and hues.field == "group":
        colour = colour.legend(orient="top", title=None, symbolType="circle", symbolOpacity=1)
    base = hues.chart(frame).encode(
        x=alt.X("epoch:Q", title="epoch", axis=axis), color=colour, detail="label:N"
    )
    unit = f"validation {what}"
    scale = alt.Scale(domain=[low, high], nice=False)

    def loss(field: str) -> Any:
        return alt.Y(field, title=unit, scale=scale)

    numbers = [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("loss", "low", "high")]
    facts = [*hues.tooltips(), "epoch:Q", *numbers, "runs:Q"]
    few = len(hues.groups) <= MANY
    own = [label for label, group in hues.groups.items() if few or group == REFERENCE]
    # The band of a point outside the axis would cover all others.
    banded = frame.filter(pl.col("label").is_in(own) & ~pl.col("label").is_in(far))
    band = hues.chart(banded).mark_area(clip=True).encode(
        x=base.encoding.x, y=loss("low:Q"), y2="high:Q", color=colour, detail="label:N",
        opacity=alt.value(0.15),
    )  # fmt: skip
    line = base.mark_line(clip=True).encode(
        y=loss("loss:Q"), opacity=hues.opacity(), strokeDash=hues.dash()
    )
    marks = base.mark_point(filled=True, clip=True, size=30 if few else 12).encode(
        y=loss("loss:Q"), opacity=hues.opacity(), tooltip=facts
    )
    head = ["mean over seeds, 95 % interval" + ("" if few else " of the reference")]
    layers = [band, line, marks]
    if named:
        layers += _names(frame, hues, (low, high), loss, colour)
    chart = titled(alt.layer(*layers), "learning curves", head + notes)
    if named:
        return chart.properties(usermeta={ENDS: True})
    return chart


def _names(
    frame: pl.DataFrame, hues: Hues, ends: tuple[float, float], loss: Any, colour: Any
) -> list[Any]:
    """Return the names of curves for their ends, moved apart where curves end together."""
    low, high = ends
    gap = (high - low) * LINE / HEIGHT
    last = frame.sort("epoch").group_by("label", maintain_order=True).last()
    rows = last.filter(pl.col("loss") <= high).sort("loss")
    places = rows["loss"].to_list()
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    top = high
    for i in reversed(range(len(places))):
        places[i] = top = min(places[i], top)
        top -= gap
    names = pl.Series([*map(short_label, rows["label"])], dtype=pl.String)
    own = rows.select("label", "loss", place=pl.Series(places, dtype=pl.Float64), shown=names)
    base = hues.chart(own).encode(tooltip=hues.tooltips())
    edge, text = (alt.XValue(alt.ExprRef(f"width + {x}")) for x in (2, LEADER))
    leaders = base.mark_rule(strokeWidth=1.5, clip=False).encode(
        x=edge, x2=alt.X2Value(alt.ExprRef(f"width + {LEADER - 4}")), y=loss("loss:Q"),
        y2="place:Q", color=colour,
    )  # fmt: skip
    texts = base.mark_text(
        align="left", baseline="middle", fontSize=11, limit=260, fill="var(--fg)"
    )
    texts = texts.encode(x=text, y=loss("place:Q"), text="shown:N")
    return [layer.properties(name=f"{ENDS}-{i}") for i, layer in enumerate((leaders, texts))]


def _baselines(
    frame: pl.DataFrame, hues: Hues, epochs: list[int]
) -> tuple[pl.DataFrame, list[str]]:
    """Draw baselines of one epoch as level lines; leave out those far above the other points."""
    flat = pl.col("label").is_in([x for x, group in hues.groups.items() if group == BASELINE])
    flat &= pl.len().over("label") == 1
    level, others = frame.filter(flat), frame.filter(~flat)
    if level.is_empty() or others.is_empty():
        return frame, []
    low, high = others["loss"].min(), others["loss"].max()
    near = pl.col("loss") <= high + 0.5 * (high - low)  # type: ignore[operator]
    ends = pl.DataFrame({"epoch": [epochs[0], epochs[-1]]}).cast(frame.schema["epoch"])
    lines = level.filter(near).drop("epoch").join(ends, how="cross").select(frame.columns)
    far = [f"{row['label']} {row['loss']:.3f}" for row in level.filter(~near).to_dicts()]
    notes = ["level lines: baselines, which are not trained by epochs"] if lines.height else []
    notes += [f"not shown: {', '.join(far)}"] if far else []
    return pl.concat([others, lines]), notes


def _compared(frame: pl.DataFrame, epochs: list[int]) -> tuple[float, float, list[str], list[str]]:
    """Return the ends of the axis, the points outside, and what notes say about values outside.

    The axis has the means after the first quarter of the epochs, in which all curves change far
    more than they differ later, and bands up to a quarter of its height beyond them. A point far
    from all others is outside.
    """
    first = epochs[len(epochs) // 4]
    last = frame.sort("epoch").group_by("label", maintain_order=True).last()
    distance = (pl.col("loss") - pl.col("loss").median()).abs()
    last = last.with_columns(distance=distance)
    limit = near_limit(last["distance"].filter(last["distance"] > 0).to_list() or [0.0])
    far = last.filter(pl.col("distance") > limit)
    near = frame.filter(~pl.col("label").is_in(far["label"].implode()))
    late = near.filter(pl.col("epoch") >= first)
    ends = (late["loss"].min(), late["loss"].max(), late["low"].min(), late["high"].max())
    low, high, least, most = (float("nan") if end is None else float(end) for end in ends)  # type: ignore[arg-type]
    room = 0.25 * (high - low) or 0.1
    bottom = max(low - room, min(low, least)) - 0.12 * room
    top = min(high + room, max(high, most)) + 0.12 * room
    is_outside = (pl.col("loss") > top) | (pl.col("loss") < bottom)
    beyond = near.filter(is_outside)["epoch"].max()
    notes = [] if beyond is None else [f"outside the axis: values up to epoch {beyond}"]
    if far.height:
        listed = (f"{label} {loss:.4g}" for label, loss in far.select("label", "loss").iter_rows())
        notes.append(f"outside the axis: {', '.join(listed)}")
    if least < bottom or most > top:
        notes.append("some bands end outside the axis")
    return bottom, top, far["label"].to_list(), notes
