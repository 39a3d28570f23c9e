"""Compare two points of a study over the seeds that both have.

    python analysis/compare.py gru_ablation "cut carry (6)"
    python analysis/compare.py gru_ablation "cut carry (6)" "cut write (7)"

Without a second label, the point is compared with the reference. `lmzoo rank` shares the variance
between points, and corrects for their number.
"""

from typing import Any

import polars as pl
from scipy import stats

import lmzoo
from lmzoo.base.command_line import run_command


def pairs(study: str, label: str, other: str | None = None) -> pl.DataFrame:
    """Return one row a seed: the test loss of both points, and their difference."""
    runs = lmzoo.runs(study).filter("chosen")
    known = runs["label"].unique(maintain_order=True).to_list()
    if missing := {label, other} - {*known, None}:
        raise lmzoo.UserError(f"no point {missing.pop()!r}; known: {', '.join(known)}")
    chosen = pl.col("reference") if other is None else pl.col("label") == other
    first = runs.filter(pl.col("label") == label).select("seed", "test")
    second = runs.filter(chosen).select("seed", other="test")
    return first.join(second, on="seed").with_columns(difference=pl.col("test") - pl.col("other"))


def main(study: str, label: str, other: str | None = None) -> None:
    """Print the pairs of two points, the mean difference and its 95 % interval."""
    table = pairs(study, label, other)
    print(table)
    result: Any = stats.ttest_1samp(table["difference"].drop_nulls(), 0)
    low, high = result.confidence_interval()
    print(f"difference {table['difference'].mean():+.4f}, 95 % {low:+.4f} to {high:+.4f}, ", end="")
    print(f"p {result.pvalue:.2g}, {result.df + 1:.0f} pairs of seeds")


if __name__ == "__main__":
    run_command(main)
