"""The chart of a search: every setting tried."""

from typing import Any

from polars import DataFrame, col

from lmzoo.lab.analysis.report.colours import Hues, chart_of, scale_of
from lmzoo.lab.store.records import STATUSES

SHOWN = (*STATUSES, "not ended")
MOST_MARKS = 4000
"""Settings that a chart shows: a browser is slow with more."""
JOINED = "lines join the finished runs of a point"


def setting_chart(
    frame: DataFrame, hues: Hues, name: str, what: str, sign: int, *, log: bool
) -> Any:
    """Return the last validated value of each tuned setting; at the edge, those without one.

    `sign` is −1 if the highest value is the best: then the edge is below, and above otherwise.
    """
    rows = frame.with_columns(col("status").fill_null("not ended"))
    measured = rows.drop_nulls("loss")
    without_loss = rows.filter(col("loss").is_null())
    chosen = measured.filter("chosen")
    worst = _worst(measured, sign)
    beyond = measured.filter(sign * col("loss") > sign * worst)
    step = 1 + len(measured) // MOST_MARKS
    # The chosen settings have marks of their own, so none is left out.
    shown = measured.gather_every(step)
    notes = [JOINED]
    if step > 1:
        notes.append(f"one of {step} settings is shown")
    if chosen.height:
        notes.append("rings: the chosen settings")
    edge = "at the top"
    side = "above"
    if sign < 0:
        edge = "at the bottom"
        side = "below"
    if without_loss.height:
        notes.append(f"{edge}: {without_loss.height} without a value")
    if beyond.height:
        values = f"{beyond.height} values"
        if beyond.height == 1:
            values = "1 value"
        notes.append(f"{edge}: {values} {side} {worst:.3g}")
    known = set(rows["status"])
    return chart_of(
        "setting",
        f"{name} of every setting",
        notes,
        name=name,
        what=what,
        log=log,
        sign=sign,
        scale=_up_to(measured, worst, beyond, sign),
        statuses=SHOWN,
        seen=[status for status in SHOWN if status in known],
        hues=hues,
        legend=hues.legend(),
        finished=hues.rows(shown.filter(status="finished")),
        shown=hues.rows(shown),
        chosen=hues.rows(chosen),
        without=hues.rows(without_loss),
    )


def _worst(measured: DataFrame, sign: int) -> float:
    """Return the value at the edge of the chart: 1.6 times the range of the finished runs."""
    # The losses of pruned runs would stretch the axis.
    ended = sign * measured.filter(status="finished")["loss"]
    best = ended.min()
    worst = ended.max()
    # Without a spread, no value is far from the others.
    if worst is None or worst == best:
        return sign * float("inf")
    return sign * (best + 1.6 * (worst - best))  # type: ignore[operator]


def _up_to(measured: DataFrame, worst: float, beyond: DataFrame, sign: int) -> dict[str, Any]:
    """Return a scale that ends at the worst value that is shown."""
    if beyond.is_empty():
        return scale_of(measured["loss"])
    best = sign * float((sign * measured["loss"]).min())  # type: ignore[arg-type]
    domain = sorted([best - 0.05 * (worst - best), worst])
    return {"domain": domain, "clamp": True, "nice": False}
