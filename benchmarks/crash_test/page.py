"""Compute the tables and the figure of docs/results/crash_test.md from the file of trainings.

    pip install -r benchmarks/crash_test/requirements.txt        the judges of other packages
    python -m benchmarks.crash_test.page                         about four minutes on two cores
    python -m benchmarks.crash_test.page --share 0.1             a tenth of the decisions

The text between `<!-- crash: NAME -->` and `<!-- end -->` of the page is replaced.
"""

import argparse
import itertools
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.crash_test import measures, noise
from benchmarks.crash_test.decisions import changes, no_ops, pools
from benchmarks.crash_test.judges import BUDGET, JUDGES, available
from benchmarks.crash_test.levels import keep_looks
from benchmarks.crash_test.measures import BINS, RANK, Rate, keeps, power, rate, right, wrong_signs
from benchmarks.crash_test.series import LENGTH, SHARES
from benchmarks.crash_test.trainings import FILE
from lmzoo.lab.statistics.compared import ERROR, compared, spend

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/results/crash_test.md"
OURS = ("lmzoo judge", "lmzoo judge --stream", RANK)
RULES: dict[str, tuple[tuple[int, ...], bool | None, float]] = {
    **{"-".join(map(str, s)): (s, None, ERROR) for s in ((3, 6, 12), (4, 12), (5, 8, 12), (12,))},
    "each seed from 3": (tuple(range(3, 13)), None, ERROR),
    "3-6-12, means": ((3, 6, 12), False, ERROR),
    "3-6-12, keeps at 5 %": ((3, 6, 12), None, 2 * ERROR),
}
"""Looks, pairs and error: one half of the studies chooses, and the other tests."""
MOST_FALSE = 0.06
"""Rules that keep more no-ops than this are no rivals."""
LABELS: tuple[tuple[bool, int, tuple[str, ...]], ...] = (
    (True, -5, ()),
    (True, 9, ("evalsig", "lmzoo judge")),
    (False, -4, ("Welch", "bootstrap")),
    (False, 8, ("Mann-Whitney", "lmzoo rank", "WilcoxonPruner")),
    (False, 2, ("almost stochastic order", "paired t, 6 seeds")),
)
"""Where the names of judges stand in the figure: right of the mark or left, and how far below."""
Rows = Sequence[Sequence[str]]


def main() -> None:
    """Write the tables and the figure into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="trainings; default: those of the repository")
    parser.add_argument("--share", type=float, default=1.0, help="of the decisions")
    parser.add_argument("--studies", type=int, default=1000, help="only the first ones")
    parser.add_argument("--length", type=int, default=LENGTH, help="candidates of a series")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    start = time.time()
    trainings = pl.read_parquet(options.file or FILE)
    first = trainings["study"].unique().sort()[: options.studies]
    trainings = trainings.filter(pl.col("study").is_in(first.to_list()))
    tables = tables_of(trainings, compute(trainings, options.share, options.length))
    figure = tables.pop("figure")
    options.page.with_suffix(".svg").write_text(figure)
    text = options.page.read_text() if options.page.exists() else ""
    options.page.write_text(fill(text, tables))
    print(f"{time.time() - start:.0f} s")  # noqa: T201


class Found(NamedTuple):
    """What was computed of all studies, one frame each."""

    told: pl.DataFrame
    curve: pl.DataFrame
    series: pl.DataFrame
    noise: pl.DataFrame
    looks: pl.DataFrame


def compute(trainings: pl.DataFrame, share: float = 1.0, length: int = LENGTH) -> Found:
    """Return what all judges say of the trainings."""
    found = pools(trainings)
    return Found(
        measures.over_studies(measures.outcomes, found, share),
        measures.over_studies(measures.power_curve, found),
        measures.over_studies(measures.series, found, 1, length),
        measures.over_studies(noise.noises, found),
        measures.over_studies(looks_of, found, max(1, round(12 / share))),
    )


def tables_of(trainings: pl.DataFrame, found: Found) -> dict[str, str]:
    """Return the tables of the page by name, and the figure."""
    shapes = found.noise.select("study", pl.col("variant").alias("configuration"), "shape")
    told = found.told.join(
        shapes,
        left_on=["study", pl.col("pair").str.split(" > ").list.first()],
        right_on=["study", "configuration"],
        how="left",
    )
    return {
        "counts": counts(trainings, told),
        "judges": judges(told),
        "sizes": sizes(told),
        "groups": groups(told),
        "series": in_series(found.series),
        "seeds": equal_power(found.curve),
        "trades": trades(told),
        "noise": noise_table(found.noise),
        "defaults": defaults(found.looks),
        "figure": figure(told),
    }


def counts(trainings: pl.DataFrame, told: pl.DataFrame) -> str:
    """Return what was trained and decided, in a sentence."""
    one = told.filter(pl.col("judge") == "Welch")
    n = {kind: one.filter(pl.col("kind") == kind).height for kind in ("no-op", "inert", "change")}
    known = one.filter("known", pl.col("kind") == "change").height
    return (
        f"{len(trainings):,} trainings of {trainings['study'].n_unique()} studies; "
        f"{n['no-op']:,} decisions about no-ops, {n['inert']:,} about inert changes, "
        f"{n['change']:,} about changes, of which {known:,} have a known effect. "
        f"Every judge may use {BUDGET} seeds of each side."
    )


def judges(told: pl.DataFrame) -> str:
    """Return the table of all judges."""
    rows = []
    for name in _judges(told):
        part = told.filter(pl.col("judge") == name)
        seeds = rate(part, pl.col("seeds"), share=False)
        cells = (
            keeps(part, "no-op"), keeps(part, "inert"), wrong_signs(part),
            power(part, 0.5, 1.0), power(part, 1.0, 2.0),
        )  # fmt: skip
        rows.append([_shown(name), *(cell.text() for cell in cells), f"{seeds.value:.1f}"])
    header = (
        "judge", "false keeps of no-ops, %", "of inert changes, %", "wrong signs, %",
        "improvements of 0.5 to 1 sd kept, %", "of 1 to 2 sd, %", "seeds",
    )  # fmt: skip
    rules = [[_shown(n), JUDGES[n].rule] for n in _judges(told) if n in JUDGES]
    return table(header, rows) + "\n\n" + table(("judge", "rule"), rules)


def sizes(told: pl.DataFrame) -> str:
    """Return the share of improvements kept, by size."""
    spans = list(itertools.pairwise(BINS))
    rows = [
        [
            _shown(name),
            *(power(told.filter(pl.col("judge") == name), *span).text() for span in spans),
        ]
        for name in _judges(told)
    ]
    numbers = [power(told.filter(pl.col("judge") == "Welch"), *span).decisions for span in spans]
    header = [f"{a:g} to {b:g} sd ({n})" for (a, b), n in zip(spans, numbers, strict=True)]
    return table(("judge", *header), rows)


def groups(told: pl.DataFrame) -> str:
    """Return false keeps of no-ops by family, task and shape of the noise."""
    names = [n for n in ("Welch", "paired t", "evalsig", "statgate", *OURS) if n in _judges(told)]
    parts = []
    for column in ("family", "task", "shape"):
        rows = []
        for value in told[column].drop_nulls().unique().sort():
            part = told.filter(pl.col(column) == value, pl.col("kind") == "no-op")
            cells = [keeps(part.filter(pl.col("judge") == name), "no-op") for name in names]
            rows.append([value, f"{cells[0].decisions:,}", *(cell.text() for cell in cells)])
        parts.append(table((column, "decisions", *map(_shown, names)), rows))
    return "\n\n".join(parts)


def in_series(runs: pl.DataFrame) -> str:
    """Return false keeps and the true loss at the end of series of 50 candidates."""
    rows = []
    for name in runs["judge"].unique(maintain_order=True):
        part = runs.filter(pl.col("judge") == name)
        nulls = part.filter(pl.col("share") < 0)
        wrong = rate(nulls, pl.col("false_keeps") > 0)
        ends = [
            rate(part.filter(pl.col("share") == share), pl.col("change"), share=False)
            for share in SHARES
        ]
        seeds = rate(part.filter(pl.col("share") == SHARES[1]), pl.col("seeds"), share=False)
        cells = (end.text(percent=False) for end in ends)
        rows.append([_shown(name), wrong.text(), *cells, f"{seeds.value:.0f}"])
    header = (
        "judge", "series of no-ops with a false keep, %",
        *(f"true loss at the end, {share:.0%} real" for share in SHARES), "runs",
    )  # fmt: skip
    return table(header, rows)


def equal_power(curve: pl.DataFrame) -> str:
    """Return the seeds of fixed rules at the power of rules that look again.

    Rules that keep too many no-ops at these seeds are marked.
    """
    whole, curve = curve, curve.filter(pl.col("effect").abs().is_between(BINS[0], BINS[-1]))
    rows = []
    for name in curve["judge"].unique(maintain_order=True):
        if name in measures.CURVED:
            continue
        part = curve.filter(pl.col("judge") == name, pl.col("effect") < 0)
        wanted = rate(part, pl.col("word") > 0)
        seeds, cells, best = rate(part, pl.col("seeds"), share=False).value, [], np.inf
        for rival in measures.CURVED:
            needed = measures.seeds_at_equal_power(curve, rival, wanted.value)
            false = measures.keeps_at(whole, rival, needed)
            cell = f"{needed:.1f} ({seeds / needed:.2f})" if needed > 0 else "more than 24"
            cells.append(f"{cell} *{100 * false:.0f} %*" if false > MOST_FALSE else cell)
            best = min(best, needed) if needed > 0 and not false > MOST_FALSE else best
        ratio = f"{seeds / best:.2f}" if best < np.inf else "—"
        rows.append([name, wanted.text(), f"{seeds:.1f}", *cells, ratio])
    header = ("judge", "improvements kept, %", "its seeds", *measures.CURVED)
    return table((*header, f"of the best below {100 * MOST_FALSE:.0f} %"), rows)


def trades(told: pl.DataFrame) -> str:
    """Return what judges say of changes whose mean and median differ in sign."""
    part = told.filter("trade", pl.col("kind") == "change", pl.col("judge") != RANK)
    if part.is_empty():
        return "No change is a trade."
    rows, sides = [], (pl.col("effect") < 0, pl.col("effect") > 0)
    for name in _judges(part):
        own = part.filter(pl.col("judge") == name)
        kept = [rate(own.filter(side), pl.col("word") > 0) for side in sides]
        rows.append([_shown(name), *(cell.text() for cell in kept)])
    one = part.filter(pl.col("judge") == "Welch")
    better, worse = (one.filter(side).height for side in sides)
    header = (
        "judge",
        f"kept: mean better, median worse, % ({better})",
        f"kept: mean worse, median better, % ({worse})",
    )
    return table(header, rows)


def noise_table(shapes: pl.DataFrame) -> str:
    """Return the shapes of noise by family and task."""
    rows = []
    for (family, task), part in sorted(shapes.group_by("family", "task"), key=lambda x: x[0]):
        base = part.filter(pl.col("kind") == "base")
        shares = [
            part.filter(pl.col("shape") == shape).height / len(part) for shape in noise.SHAPES
        ]
        spread = np.log(part.filter(pl.col("sd") > 0)["sd"].to_numpy()).std()
        diverged = part["failed"].sum() / part["seeds"].sum()
        rows.append(
            [
                str(family), str(task), f"{base['sd'].mean() or np.nan:.4f}",
                f"{part['skew'].median():+.1f}", f"{part['kurtosis'].median():+.1f}",
                *(f"{100 * share:.0f}" for share in shares), f"{np.exp(spread):.1f}",
                f"{part['shared'].mean():.2f}", f"{100 * diverged:.1f}",
            ]
        )  # fmt: skip
    header = (
        "family", "task", "sd of the base", "skew", "excess kurtosis",
        *(f"{shape}, %" for shape in noise.SHAPES), "spread of sd, factor", "shared by seeds",
        "diverged, %",
    )  # fmt: skip
    return table(header, rows)


def defaults(told: pl.DataFrame) -> str:
    """Return the looks that one half of the studies chooses, and what the other half says."""
    rows = []
    for name in dict.fromkeys(told["judge"]):
        for half in ("chooses", "tests"):
            part = told.filter(pl.col("judge") == name, pl.col("half") == half)
            cells = keeps(part, "no-op").text(), right(part, BINS[0], BINS[-1]).text()
            seeds = rate(
                part.filter(pl.col("kind") == "change"), pl.col("seeds"), share=False
            ).value
            rows.append([name, half, *cells, f"{seeds:.1f}"])
    header = ("rule", "half", "false keeps of no-ops, %", "right words, %", "seeds of a change")
    return table(header, rows)


def looks_of(pool: measures.Pool, step: int) -> pl.DataFrame:
    """Return the words of several rules, about every `step`-th decision."""
    asked = [*no_ops(pool)][::step] + [one for one in changes(pool) if one.known][::step]
    half = ("chooses", "tests")[sum(pool.family.encode() + pool.task.encode()) % 2]
    rows = []
    for one in asked:
        x = np.stack([one.case.a, one.case.b])
        x[x >= pool.failure] = np.inf
        for name, (schedule, paired, error) in RULES.items():
            planned = keep_looks(spend(schedule), error)
            word, seeds = 0, schedule[-1]
            for n in schedule:
                known = np.where(np.arange(BUDGET) < n, x, np.nan)
                word = -int(compared(known, 0, looks=planned, margin=0.0, paired=paired).sign[1])
                if word:
                    seeds = n
                    break
            rows.append((pool.study, half, one.kind, one.effect, one.known, name, word, seeds))
    names = ("study", "half", "kind", "effect", "known", "judge", "word", "seeds")
    return pl.DataFrame(rows, schema=list(names), orient="row", infer_schema_length=None)


def figure(told: pl.DataFrame) -> str:
    """Return the figure: false keeps of no-ops against improvements kept, one mark a judge."""
    import altair as alt
    import vl_convert

    rows = []
    for name in _judges(told):
        part = told.filter(pl.col("judge") == name)
        false, kept = keeps(part, "no-op"), power(part, 0.5, 2.0)
        if false.decisions and kept.decisions:
            rows.append(
                {"judge": name, "ours": name in OURS, **_ends(false, "f"), **_ends(kept, "k")}
            )
    frame = pl.DataFrame(rows)
    base = alt.Chart(frame)
    x = alt.X("k", title="improvements of 0.5 to 2 sd that are kept, %").scale(domain=[0, 100])
    y = (
        alt.Y("f", title="no-ops that are kept, %")
        .scale(type="symlog", constant=1, domain=[0, 65])
        .axis(values=[0, 1, 2, 3, 5, 10, 20, 50])
    )
    colour = alt.Color("ours", legend=None).scale(
        domain=[True, False], range=["#c2410c", "#475569"]
    )
    marks = base.mark_point(filled=True, size=60).encode(x, y, colour)
    bars = base.mark_rule().encode(x, y, colour, y2="f_high")
    bars_low = base.mark_rule().encode(x, y, colour, y2="f_low")
    names = []
    for to_right, down, judges_there in LABELS:
        place = {"align": "left" if to_right else "right", "dx": 7 if to_right else -7, "dy": down}
        there = pl.col("judge").is_in(judges_there)
        if not judges_there:  # all others
            there = ~pl.col("judge").is_in([n for _, _, few in LABELS for n in few])
        part = alt.Chart(frame.filter(there))
        names.append(part.mark_text(fontSize=10, **place).encode(x, y, colour, text="judge"))
    limit = alt.Chart(pl.DataFrame({"f": [5.0]})).mark_rule(strokeDash=[4, 3]).encode(y)
    chart = alt.layer(limit, bars, bars_low, marks, *names).properties(width=620, height=380)
    return vl_convert.vegalite_to_svg(chart.to_json())


def _ends(found: Rate, name: str) -> dict[str, float]:
    return {
        name: 100 * found.value, f"{name}_low": 100 * found.low, f"{name}_high": 100 * found.high
    }  # fmt: skip


def _judges(told: pl.DataFrame) -> list[str]:
    there = set(told["judge"])
    return [name for name in (*available(), RANK) if name in there]


def _shown(name: str) -> str:
    return f"**{name}**" if name in OURS else name


def table(header: Sequence[str], rows: Rows) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill(text: str, tables: dict[str, str]) -> str:
    """Return the page with the tables in their places; a table without a place is at the end."""
    for name, body in tables.items():
        block = f"<!-- crash: {name} -->\n\n{body}\n\n<!-- end -->"
        pattern = rf"<!-- crash: {name} -->.*?<!-- end -->"
        if re.search(pattern, text, re.S):
            text = re.sub(pattern, lambda _, block=block: block, text, flags=re.S)
        else:
            text = f"{text.rstrip()}\n\n{block}\n"
    return text


if __name__ == "__main__":
    main()
