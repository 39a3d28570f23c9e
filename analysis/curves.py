"""Show the validation loss of each point by epoch: median and quartiles over seeds.

    python analysis/curves.py gru_ablation
    python analysis/curves.py gru_ablation --chart curves.svg

The chart needs altair (`pip install 'lmzoo-ablations[figures]'`). `lmzoo figure` draws more charts.
"""

from pathlib import Path

import polars as pl

import lmzoo
from lmzoo.base.command_line import run_command


def losses(study: str) -> pl.DataFrame:
    """Return one row an epoch of a point."""
    valid = pl.col("valid")
    return (
        lmzoo.curves(study)
        .filter("chosen", valid.is_not_null())
        .group_by("label", "epoch", maintain_order=True)
        .agg(
            valid.quantile(0.25, "linear").alias("low"),
            valid.median().alias("median"),
            valid.quantile(0.75, "linear").alias("high"),
            valid.len().alias("seeds"),
        )
    )


def main(study: str, chart: Path | None = None) -> None:
    """Print the losses by epoch, one column an epoch, and draw them if a file is given."""
    table = losses(study)
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=240, fmt_str_lengths=99,
        float_precision=4, tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True,
    ):  # fmt: skip
        print(table.sort("epoch").pivot("epoch", index="label", values="median").sort("label"))
    if chart is not None:
        import altair as alt

        lines = alt.Chart(table).encode(alt.X("epoch:O"), color="label")
        median = lines.mark_line().encode(alt.Y("median").scale(zero=False))
        quartiles = lines.mark_area(opacity=0.2).encode(alt.Y("low"), alt.Y2("high"))
        (quartiles + median).save(chart)


if __name__ == "__main__":
    run_command(main)
