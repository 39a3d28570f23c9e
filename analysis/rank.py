"""Rank the points of a study: mean test loss over seeds, and the difference to the reference.

    python analysis/rank.py gru_ablation
    python analysis/rank.py docs/results/records/gru_ablation-captions.parquet

The study is a folder, a file of records, or a name in runs/. The verdicts are those of
`lmzoo rank`, which has more columns, and so are the differences.
"""

import polars as pl

import lmzoo
from lmzoo.base.command_line import run_command


def ranking(study: str) -> pl.DataFrame:
    """Return one row a point, the best first."""
    runs = lmzoo.runs(study).filter("chosen")
    points = runs.group_by("label").agg(
        pl.col("test").mean().alias("mean"),
        pl.col("test").std().alias("sd"),
        pl.col("test").count().alias("seeds"),
        pl.col("parameters").first(),
    )
    verdicts = lmzoo.rank(study).select("rank", "label", "verdict", "difference")
    return verdicts.join(points, on="label").sort("rank", nulls_last=True)


def main(study: str) -> None:
    """Print the ranking of a study."""
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=240, fmt_str_lengths=99,
        float_precision=4, tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True,
    ):  # fmt: skip
        print(ranking(study))


if __name__ == "__main__":
    run_command(main)
