"""Loss against the size of a model: one fitted curve per architecture, compared at equal size.

    python tools/scaling_fits.py runs/scaling-captions --by state

A curve has the points whose labels are equal up to the last word, such as `LSTM E=8` and
`LSTM E=16`. Curves are compared where all of them were measured: at the smallest and the largest
shared size and at their geometric mean. A curve that shares no size with the others is left out.
`power_law.py` has the equations.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from power_law import PowerLaw, fit_power_laws, log_ratio

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.formatting import MISSING, format_mean, format_number
from lmzoo.lab.analysis.load import StudyFolder, confirm_runs, load_study
from lmzoo.lab.analysis.render import Report, TextTable, render

SIZES = {"parameters": "parameters", "state": "state_size", "compute": "flops"}
"""Kind of size -> its column of the runs. Compute is that of the matrix products of a token."""
WHERE = ("low", "middle", "high")
"""The three shared sizes at which curves are compared."""


class Scaling(NamedTuple):
    """The fitted curves of a study."""

    frame: pl.DataFrame
    """One row per curve, the reference first. Columns: curve, reference, points, smallest, largest,
    exponent (at the middle), birge, and, for each of `WHERE`, size, loss and ratio (loss / loss of
    the reference). Estimates have 95 % intervals (`_low`, `_high`)."""
    changes: list[tuple[str, str]]
    """The pairs of curves of which one is better at the low and the other at the high size; both
    differences exclude 0 with 95 % confidence."""
    left_out: dict[str, tuple[float, float]]
    """The curves that share no size with the others, and their smallest and largest size."""
    points: pl.DataFrame
    """One row per point, also of the curves left out. Columns: curve, size, loss (mean over seeds),
    and the fitted loss at this size with its 95 % band: fitted, fitted_low, fitted_high."""


def scaling_curves(folder: StudyFolder, *, by: str, metric: str = "token") -> Scaling:
    """Fit a curve to the points of each architecture of a study, and compare the curves.

    Args:
        folder: the study, as `load_study` reads it.
        by: one of `SIZES`.
        metric: `token` or `sentence`.

    Raises:
        UserError: The kind of size is unknown, fewer than two sizes of each curve are confirmed, or
            no curve shares a size with the reference.
    """
    if by not in SIZES:
        raise UserError(f"no size {by!r}; known: {', '.join(SIZES)}")
    curves = _curves(folder, SIZES[by], metric)
    if not curves:
        raise UserError(
            f"study {folder.study['name']!r} has no curve: at least two confirmed points whose "
            f"labels differ in the last word only, with different {by}"
        )
    fits = fit_power_laws(
        [np.array(curve["size"].to_list(), float) for curve in curves.values()],
        [curve["losses"].to_list() for curve in curves.values()],
        [np.array(curve["tuning"].to_list(), float) for curve in curves.values()],
    )
    laws = dict(zip(curves, fits, strict=True))
    # The first curve, if the reference of the study is in no curve.
    home = next(
        (name for name, curve in curves.items() if curve["reference"].any()), next(iter(curves))
    )
    spans = {name: (float(law.sizes.min()), float(law.sizes.max())) for name, law in laws.items()}
    compared = _compared(spans, home)
    if len(compared) < 2 <= len(laws):
        raise UserError(f"the curves share no size: all were measured at different {by}")
    points = pl.DataFrame(
        [
            {"curve": name, "size": row["size"], "loss": float(np.nanmean(row["losses"]))}
            | _interval("fitted", laws[name].band(row["size"]))
            for name, curve in curves.items()
            for row in curve.to_dicts()
        ]
    )
    left_out = {name: span for name, span in spans.items() if name not in compared}
    laws = {name: law for name, law in laws.items() if name in compared}
    low, high = max(spans[name][0] for name in laws), min(spans[name][1] for name in laws)
    shared: dict[str, float] = dict(
        zip(WHERE, (low, float(np.sqrt(low * high)), high), strict=True)
    )
    rows = [
        {
            "curve": name,
            "reference": name == home,
            "points": len(law.sizes),
            "smallest": law.sizes.min(),
            "largest": law.sizes.max(),
            **_interval("exponent", law.exponent(shared["middle"])),
            "birge": law.birge,
            **_at_shared_sizes(law, laws[home], shared),
        }
        for name, law in laws.items()
    ]
    frame = pl.DataFrame(rows).fill_nan(None)
    changes = [
        (a, b)
        for (a, first), (b, second) in combinations(laws.items(), 2)
        if _sign(first, second, low) * _sign(first, second, high) < 0
    ]
    frame = frame.sort(~pl.col("reference"), "loss_high_size", maintain_order=True)
    return Scaling(frame, changes, left_out, points)


def _compared(spans: Mapping[str, tuple[float, float]], home: str) -> set[str]:
    """Return the curves to compare: most that share a size with the reference and each other.

    Of two choices with as many curves, the one with the wider range of shared sizes.
    """

    def choice(size: float) -> tuple[int, float, set[str]]:
        names = {name for name, (low, high) in spans.items() if low <= size <= high}
        width = min(spans[name][1] for name in names) / max(spans[name][0] for name in names)
        return len(names), width, names

    low, high = spans[home]
    sizes = {end for span in spans.values() for end in span if low <= end <= high}
    return max(map(choice, sorted(sizes)), key=lambda found: found[:2])[2]


def _sign(first: PowerLaw, second: PowerLaw, size: float) -> int:
    """Return −1 if the first curve is lower at this size, +1 if the second is, 0 if undecided."""
    _, low, high = log_ratio(first, second, size)
    return int(low > 0) - int(high < 0)


def _interval(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _at_shared_sizes(
    law: PowerLaw, reference: PowerLaw, shared: Mapping[str, float]
) -> dict[str, float | None]:
    result: dict[str, float | None] = {}
    for where, size in shared.items():
        ratio = np.exp(log_ratio(law, reference, size)).tolist()
        result[f"{where}_size"] = size
        result |= _interval(f"loss_{where}_size", law.band(size))
        result |= _interval(f"ratio_{where}_size", [None] * 3 if law is reference else ratio)
    return result


def _curves(folder: StudyFolder, column: str, metric: str) -> dict[str, pl.DataFrame]:
    """Return the points of each curve: size, losses of the seeds, spread of the tuning."""
    study = folder.study
    confirm, _ = confirm_runs(folder.runs, folder.events, study, metric)
    own = (
        confirm.drop_nulls("seed")
        .sort("seed")
        .pivot("seed", index="point", values="loss", aggregate_function="mean")
    )
    wide = {point: list(losses) for point, *losses in own.iter_rows()}
    sizes = dict(folder.runs.select("point", column).unique("point").collect().iter_rows())
    points: dict[str, list[dict[str, Any]]] = {}
    for point in study["points"]:
        values = np.array(wide.get(point["id"], []), np.float64)
        size = sizes.get(point["id"])
        if not np.isfinite(values).any() or not size:
            continue
        points.setdefault(point["label"].rpartition(" ")[0], []).append(
            {
                "size": size,
                "losses": np.where(np.isfinite(values), values, np.nan).tolist(),
                "tuning": study["chosen"][point["id"]].get("tuning_sd") or 0.0,
                "reference": point["id"] == study["reference"],
            }
        )
    frames = {name: pl.DataFrame(rows).sort("size") for name, rows in points.items() if name}
    return {name: frame for name, frame in frames.items() if _varies(frame["size"].to_list())}


def _varies(sizes: list[float]) -> bool:
    return any(a != b for a, b in pairwise(sizes))


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
            format_mean(*_ends(row, "exponent"), form=".3f"),
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
    return format_mean(*_ends(row, name), form=".3f")


def _ratio(row: Mapping[str, Any], where: str) -> str:
    ends = _ends(row, f"ratio_{where}_size")
    if ends[0] is None:
        return MISSING
    return format_mean(*(None if x is None else 100 * (x - 1) for x in ends), form="+.1f") + " %"


def _ends(row: Mapping[str, Any], name: str) -> tuple[float | None, ...]:
    return tuple(row[f"{name}{end}"] for end in ("", "_low", "_high"))


def main() -> None:
    """Print the curves of a study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--by", default="parameters", choices=SIZES)
    options = parser.parse_args()
    print(render(study_scaling(options.study, by=options.by), "table", width=120))  # noqa: T201


if __name__ == "__main__":
    main()
