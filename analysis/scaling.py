"""Show the loss of each architecture by its size, and what a doubling of the parameters gains.

    python analysis/scaling.py docs/results/records/scaling-captions.parquet

Points whose labels are equal up to the last word are one architecture: `LSTM E=8`, `LSTM E=16`.
`tools/scaling_fits.py` fits curves, and compares them at equal size.
"""

import polars as pl

import lmzoo
from lmzoo.base.command_line import run_command


def sizes(study: str) -> pl.DataFrame:
    """Return one row a point; `gain` is per doubling of the parameters since the row above."""
    doublings = pl.col("parameters").log(2).diff()
    return (
        lmzoo.runs(study)
        .filter("chosen", pl.col("parameters") > 0)
        .with_columns(architecture=pl.col("label").str.replace(r" \S+$", ""))
        .group_by("architecture", "parameters")
        .agg(pl.col("test").mean().alias("loss"), pl.col("test").std().alias("sd"), seeds=pl.len())
        .sort("architecture", "parameters")
        .with_columns(gain=(-pl.col("loss").diff() / doublings).over("architecture"))
    )


def main(study: str) -> None:
    """Print the table of sizes."""
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=240, fmt_str_lengths=99,
        float_precision=4, tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True,
    ):  # fmt: skip
        print(sizes(study))


if __name__ == "__main__":
    run_command(main)
