"""Loss against size as text: heading, tables and legend."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.analysis.records.load import load_study
from lmzoo.analysis.tables.scaling import WHERE, scaling_curves
from lmzoo.analysis.text.formatting import MISSING, format_mean, format_number
from lmzoo.analysis.text.render import Report, TextTable


def study_scaling(path: Path, *, by: str = "parameters", metric: str = "token") -> Report:
    """Return how the loss of each curve of the study in folder `path` falls with its size.

    Args and errors are those of `scaling_curves`.
    """
    folder = load_study(path)
    frame, changes, left_out, _ = scaling_curves(folder, by=by, metric=metric)
    rows = frame.to_dicts()
    shared = [rows[0][f"{where}_size"] for where in WHERE]
    where = WHERE if shared[0] < shared[-1] else WHERE[:1]  # curves may share one size only
    sizes = [f"at {size:,.0f}" for size in shared[: len(where)]]
    reference = rows[0]["curve"]
    fits = [
        (
            row["curve"],
            format_number(row["points"], ""),
            f"{row['smallest']:,.0f} to {row['largest']:,.0f}",
            format_mean(row["exponent"], row["exponent_high"], ".3f"),
            *(_loss(row, name) for name in where),
            "" if row["birge"] == 1 else f"rough ({row['birge']:.1f})",
        )
        for row in rows
    ]
    ratios = [(row["curve"], *(_ratio(row, name) for name in where)) for row in rows[1:]]
    answer = "; ".join(f"{a} and {b} change their order" for a, b in changes)
    order = answer or "no two curves change their order for certain"
    if len(where) == 1:
        order = f"the curves share one size, {shared[0]:,.0f}"
    if left_out:
        spans = [f"{name} ({low:,.0f} to {high:,.0f})" for name, (low, high) in left_out.items()]
        order += f"; no size in common with the others: {', '.join(spans)}"
    header = ("curve", "points", by, "exponent", *sizes, "fit")
    text = frozenset({"curve", "fit"})
    tables = [TextTable("fitted curves", header, fits, text)]
    if ratios:
        title = f"loss relative to {reference}"
        tables.append(TextTable(title, ("curve", *sizes), ratios, text))
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: test loss in nats per token against {by}; 95 % intervals",
            f"order: {order}",
        ),
        tables=tuple(tables),
        legend=(
            "exponent: the loss falls as size^−exponent at the middle size; at: the loss of the "
            "fitted curve at this size, which all curves reach",
            "rough: the sizes do not lie on a smooth curve within their errors, by this factor, "
            "which the intervals include",
            "state: numbers carried from token to token; compute: floating point operations of the "
            "matrix products of a forward pass for one token",
        ),
        frame=frame,
    )


def _loss(row: Mapping[str, Any], where: str) -> str:
    name = f"loss_{where}_size"
    return format_mean(row[name], row[f"{name}_high"], ".3f")


def _ratio(row: Mapping[str, Any], where: str) -> str:
    ratio, high = (row[f"ratio_{where}_size{end}"] for end in ("", "_high"))
    if ratio is None:
        return MISSING
    return format_mean(100 * (ratio - 1), None if high is None else 100 * (high - 1), "+.1f") + " %"
