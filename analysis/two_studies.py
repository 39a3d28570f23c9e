"""Compare the points that two studies have in common, such as a study and its next version.

    python analysis/two_studies.py runs/gru_ablation-captions runs/gru_ablation-new

A difference is B less A over the seeds that both have, with its 95 % interval. Without two common
seeds on the same data there is none. It does not cover the choice of the settings.
"""

import polars as pl
from scipy import stats

import lmzoo
from lmzoo.base.command_line import run_command


def differences(first: str, second: str) -> pl.DataFrame:
    """Return one row a common point: mean losses, pairs of seeds, difference and half-width."""
    a, b = (
        lmzoo.runs(study).filter("chosen").select("label", "fingerprint", "seed", "test")
        for study in (first, second)
    )
    seed = pl.col("difference")
    error = seed.std() / seed.count().sqrt()
    pairs = a.join(b, on=["label", "fingerprint", "seed"], suffix="_b")
    pairs = pairs.with_columns(difference=pl.col("test_b") - pl.col("test"))
    paired = pairs.group_by("label").agg(seed.count().alias("pairs"), seed.mean(), error=error)
    quantiles = [stats.t.ppf(0.975, n - 1) if n > 1 else None for n in paired["pairs"]]
    paired = paired.with_columns(half=pl.Series(quantiles, dtype=pl.Float64) * pl.col("error"))
    means = [
        study.group_by("label", maintain_order=True).agg(pl.col("test").mean()) for study in (a, b)
    ]
    common = means[0].join(means[1], on="label", suffix="_b", maintain_order="left")
    return common.join(paired.drop("error"), on="label", how="left", maintain_order="left")


def main(first: str, second: str) -> None:
    """Print the points that both studies have."""
    table = differences(first, second)
    if table.is_empty():
        raise lmzoo.UserError(f"{first} and {second} have no point of the same label")
    with pl.Config(tbl_rows=-1, fmt_str_lengths=99, float_precision=4):
        print(table)


if __name__ == "__main__":
    run_command(main)
