r"""Effects of the cuts of a cell and interactions of pairs: tables and heat map of a results page.

With y(A) the loss of the mutant with the cuts A:

    effect       E_i  = mean over A of y(A ∪ i) − y(A)                         over all pairs
    alone        y(i) − y(∅)
    interaction  E_ij = mean over A of y(A ∪ ij) − y(A ∪ i) − y(A ∪ j) + y(A)  over all squares
    given        the effect of i over these squares, without j (intact) and with j (thrown)

Some sets of cuts are invalid, or give the same function as another set, so the design is not full.
A pair or a square counts if all its mutants have all seeds. An interaction without any square is
null; nothing is extrapolated. In a full design the two equal 2 β_i and 4 β_ij of the regression in
±1 coding (Box, Hunter & Hunter 2005, Statistics for Experimenters, chapter 5).

A seed is a block: all mutants of one seed share the order of the data and all initial weights they
have in common. So each estimate is computed within each seed, as a contrast of the losses, and the
interval is that of a mean over seeds. Few seeds say little about the variance of one estimate, so
the estimates of one kind share it as far as they are alike: their variances over seeds, divided by
Σ w² of the weights (`lmzoo/lab/statistics/noise.py`). p is of the same test, with Holm's correction
over all effects and interactions. What the choice of a setting adds is not counted: the study of
the page searches nothing. `analysis/epistasis.py` has the same means.
"""

import io
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special

import lmzoo
from lmzoo.lab.analysis.formatting import MISSING, UNITS, format_mean, format_number, format_p
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.render import Report, TextTable
from lmzoo.lab.statistics.contrasts import holm
from lmzoo.lab.statistics.intervals import LEVEL, Array, mean_and_error
from lmzoo.lab.statistics.noise import LEAST_POINTS, half_width, posterior, tail

ESTIMATES = ("effect", "alone", "given_intact", "given_thrown")
COLOURS = ["#0068b3", "#f4f6f8", "#b8430a"]
"""Colours of the lowest effect, of zero and of the highest one."""
NOTE_WIDTH = 90
SQUARE = 50
"""Side of a square in pixels, before scaling."""
HALF = 0.1791
"""Relative luminance at which black and white text have the same contrast, 4.58 (WCAG 2.2)."""
NOTES = (
    "diagonal: mean change of the test loss (nats per token) by a switch, over all pairs of points "
    "that differ in it only",
    "off the diagonal: by how much the second switch changes the effect of the first",
    "in brackets: the 95 % interval includes zero",
)


class Mutants(NamedTuple):
    """The mutants of one cell, all measured on the same seeds."""

    cell: str
    cuts: tuple[str, ...]
    labels: tuple[str, ...]
    patterns: NDArray[np.bool_]
    """(P, F): whether cut f is made in mutant p; no two rows are equal."""
    losses: Array
    """(P, S) test losses in nats per token."""


def study_epistasis(records: Path) -> Report:
    """Return effects and interactions of the cuts of the reference's cell."""
    study, mutants = load_study(records).study, read_mutants(str(records))
    frame = estimates(mutants)
    is_pair = pl.col("second").is_not_null()
    pairs = frame.filter(is_pair & (pl.col("count") > 0))
    missing = frame.filter(is_pair & (pl.col("count") == 0)).select("first", "second").rows()
    return Report(
        heading=(
            study["question"],
            f"{study['name']}: {UNITS['token']}, test at epoch {study['budget']['epochs']}; "
            "changes of the loss (positive is worse); 95 % intervals over "
            f"{mutants.losses.shape[1]} seeds; p: of an effect of 0, with Holm's correction",
        ),
        tables=(
            _switches(mutants, frame.filter(~is_pair).sort("effect")),
            _pairs(mutants, pairs.sort(pl.col("effect").abs(), descending=True)),
        ),
        legend=(
            "effect: mean over all pairs of mutants that differ in this switch only",
            "interaction: how much the second switch changes the effect of the first, mean over "
            "all squares",
            f"{mutants.cell}: no squares, so no interaction: "
            + ", ".join(f"{first} × {second}" for first, second in missing),
        ),
        frame=frame,
    )


def read_mutants(study: str) -> Mutants:
    """Return the mutants of the reference's cell that have all seeds, the reference first."""
    name = pl.col("model").str.json_path_match("$.cell.name").alias("cell")
    cuts = pl.col("model").str.json_path_match("$.cell.cuts").alias("cuts")
    runs = lmzoo.runs(study).filter("chosen").with_columns(name, cuts).drop_nulls("cuts")
    cell = runs.filter("reference")["cell"].item(0)
    wide = runs.filter(cell=cell).pivot("seed", index=["label", "reference", "cuts"], values="test")
    wide = wide.drop_nulls().sort("reference", descending=True, maintain_order=True)
    own = wide["cuts"].str.json_decode(pl.List(pl.String)).to_list()
    known = list(dict.fromkeys(cut for cuts in own for cut in sorted(cuts)))
    patterns = np.array([[cut in cuts for cut in known] for cuts in own], bool)
    losses = wide.drop("label", "reference", "cuts").to_numpy()
    return Mutants(cell, tuple(known), tuple(wide["label"]), patterns, losses)


def estimates(mutants: Mutants) -> pl.DataFrame:
    """Return all effects and interactions; null where undefined.

    `second` is null for a single cut; for a pair, `effect` is the interaction.
    """
    places = range(len(mutants.cuts))
    terms = [*((i,) for i in places), *combinations(places, 2)]
    rows = [contrasts(mutants.patterns, term) for term in terms]
    is_pair = np.array([len(term) == 2 for term in terms])
    names = mutants.cuts
    columns: dict[str, Any] = {
        "first": [names[term[0]] for term in terms],
        "second": [names[term[1]] if len(term) == 2 else None for term in terms],
        "count": [len(cubes(mutants.patterns, term)) for term in terms],
    }
    for name in ESTIMATES:
        weights = np.stack([row[name] for row in rows])
        mean, half, p = _measured(weights, mutants.losses, is_pair)
        columns |= {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
        if name == "effect":
            columns |= {"p_raw": p, "p": holm(p)}
    return pl.DataFrame(columns).fill_nan(None)


def contrasts(patterns: NDArray[np.bool_], term: tuple[int, ...]) -> dict[str, Array]:
    """Return the weights (P,) of each estimate of a cut or a pair; NaN where it is undefined."""
    corners = cubes(patterns, term)
    weights = dict.fromkeys(ESTIMATES, np.full(len(patterns), np.nan))
    if len(term) == 1:
        alone = corners[~patterns[corners[:, 0]].any(1)]
        signs = {"effect": (corners, (-1, 1)), "alone": (alone, (-1, 1))}
    else:
        signs = {
            "effect": (corners, (1, -1, -1, 1)),
            "given_intact": (corners, (-1, 1, 0, 0)),
            "given_thrown": (corners, (0, 0, -1, 1)),
        }
    return weights | {name: _weights(len(patterns), *own) for name, own in signs.items()}


def cubes(patterns: NDArray[np.bool_], cuts: Sequence[int]) -> NDArray[np.int64]:
    """Return all sets of mutants that differ in these cuts only and have every setting of them.

    Returns:
        Indices of mutants (C, 2**len(cuts)), one row per set. The first cut varies fastest:
        for two cuts the columns are neither, the first, the second, both.
    """
    index = {pattern.tobytes(): p for p, pattern in enumerate(patterns)}
    settings = np.arange(2 ** len(cuts))[:, None] >> np.arange(len(cuts)) & 1
    complete = []
    for base in patterns[~patterns[:, list(cuts)].any(1)]:
        corners = np.repeat(base[None], len(settings), axis=0)
        corners[:, list(cuts)] = settings
        rows = [index.get(corner.tobytes()) for corner in corners]
        if None not in rows:
            complete.append(rows)
    return np.array(complete, np.int64).reshape(-1, len(settings))


def _weights(mutants: int, corners: NDArray[np.int64], signs: Sequence[int]) -> Array:
    """Return the weights of the mean signed loss over the rows of `corners`; NaN for no rows."""
    if not len(corners):
        return np.full(mutants, np.nan)
    weights = np.zeros(mutants)
    for column, sign in zip(corners.T, signs, strict=True):
        np.add.at(weights, column, sign / len(corners))
    return weights


def _measured(
    weights: Array, losses: Array, is_pair: NDArray[np.bool_]
) -> tuple[Array, Array, Array]:
    """Return means, halves of the intervals and p of the estimates with these weights (E, P)."""
    n, mean, error = mean_and_error(weights @ losses)
    scale = (weights**2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance, freedom = error**2 * n / scale, n - 1
        p = 2 * special.stdtr(freedom, -np.where(error > 0, np.abs(mean) / error, np.nan))
    half = special.stdtrit(freedom, (1 + LEVEL) / 2) * error
    for kind in (is_pair, ~is_pair):  # a cut may change with the seed, so they are not alike
        kind = kind & (variance > 0)
        if kind.sum() < LEAST_POINTS:
            continue
        possible, weight, _ = posterior(variance[kind], freedom[kind])
        sd = np.sqrt(possible * (scale / n)[kind, None])
        normal = np.full(sd.shape, np.inf)
        p[kind] = 2 * tail(weight, sd, normal, np.abs(mean[kind]))
        half[kind] = half_width(weight, sd, normal, LEVEL)
    return mean, half, p


def _switches(mutants: Mutants, frame: pl.DataFrame) -> TextTable:
    single = {
        mutants.cuts[pattern.argmax()]: label
        for label, pattern in zip(mutants.labels, mutants.patterns, strict=True)
        if pattern.sum() == 1
    }
    rows = [
        (row["first"], single.get(row["first"], MISSING), _mean(row, "effect"), str(row["count"]),
         _mean(row, "alone"), format_p(row["p"]))
        for row in frame.to_dicts()
    ]  # fmt: skip
    title = f"{mutants.cell}: effects of {len(rows)} switches in {len(mutants.labels)} mutants"
    header = ("switch", "point", "effect", "pairs", "in the wild type", "p")
    return TextTable(title, header, rows, frozenset(header[:2]))


def _pairs(mutants: Mutants, frame: pl.DataFrame) -> TextTable:
    rows = [
        (f"{row['first']} × {row['second']}", _mean(row, "effect"), str(row["count"]),
         _mean(row, "given_intact"), _mean(row, "given_thrown"), format_p(row["p"]))
        for row in frame.to_dicts()
    ]  # fmt: skip
    header = ("pair", "interaction", "squares", "first, second off", "first, second on", "p")
    title = f"{mutants.cell}: interactions, the strongest first"
    return TextTable(title, header, rows, frozenset(header[:1]))


def _mean(row: dict[str, Any], name: str) -> str:
    return format_mean(row[name], row[f"{name}_low"], row[f"{name}_high"], form="+.3f")


def heat_map(records: Path) -> str:
    """Return the effects and interactions as SVG: effects on the diagonal, interactions off it.

    Blue is a lower loss, orange a higher one. A square without colour has no mutants to estimate it
    from. A number is black or white, by the colour of its square.
    """
    mutants = read_mutants(str(records))
    frame = estimates(mutants)
    bound = max(abs(effect) for effect in frame["effect"].drop_nulls())
    order = list(mutants.cuts)
    base = alt.Chart(alt.InlineData(values=squares(frame))).encode(
        x=alt.X("x:N", sort=order, title=None).axis(labelAngle=-45).scale(domain=order),
        y=alt.Y("y:N", sort=order, title=None).scale(domain=order),
        tooltip=[
            alt.Tooltip("x:N", title="switch"),
            alt.Tooltip("y:N", title="with"),
            alt.Tooltip("value:Q", title="nats", format="+.4f"),
            alt.Tooltip("low:Q", format="+.4f"),
            alt.Tooltip("high:Q", format="+.4f"),
            alt.Tooltip("pairs:Q", title="estimates averaged"),
        ],
    )
    colour = alt.Color("value:Q", title="nats").scale(
        range=COLOURS, domain=[-bound, 0, bound], interpolate=alt.ScaleInterpolateEnum("rgb")
    )
    light = f"luminance(scale('color', datum['value'])) > {HALF}"
    number = alt.condition(light, alt.value("#000000"), alt.value("#ffffff"))
    layers = (
        base.mark_rect(stroke="#8888", strokeWidth=0.5).encode(color=colour),
        base.mark_text(fontSize=12).encode(text="text:N", color=number),
    )
    size = {"step": SQUARE}
    lines = [line for note in NOTES for line in wrap(note, NOTE_WIDTH)]
    title = alt.TitleParams(load_study(records).study["question"], subtitle=lines, anchor="start")
    chart = alt.vconcat(
        alt.layer(*layers, title=mutants.cell, width=size, height=size), padding=20
    ).properties(title=title)
    file = io.StringIO()
    chart.save(file, format="svg", scale_factor=2)
    return file.getvalue()


def squares(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one square for each cut and two for each pair, with value and text."""
    found = []
    for row in frame.drop_nulls("effect").to_dicts():
        first, second = row["first"], row["second"] or row["first"]
        excludes_zero = row["effect_low"] is not None and row["effect_low"] * row["effect_high"] > 0
        value = format_number(row["effect"], "+.2f")
        shown = {
            "text": value if excludes_zero else f"({value})",
            "value": round(row["effect"], 9),  # further digits depend on the machine
            "low": row["effect_low"],
            "high": row["effect_high"],
            "pairs": row["count"],
        }
        for x, y in {(first, second), (second, first)}:
            found.append({"x": x, "y": y, **shown})
    return sorted(found, key=lambda square: (square["y"], square["x"]))
