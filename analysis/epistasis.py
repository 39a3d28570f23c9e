"""Estimate the effect of each cut of a cell, and the interaction of each pair of cuts.

    python analysis/epistasis.py gru_ablation

The effect of a cut is the mean change of the loss over all pairs of points that differ in this cut
only. An interaction is how much a second cut changes it: the mean over all squares of points.
`lmzoo epistasis` has intervals, and reads other switches than cuts.
"""

from itertools import combinations

import polars as pl

import lmzoo
from lmzoo.base.command_line import run_command


def effects(study: str) -> pl.DataFrame:
    """Return one row a cut and a pair of cuts: its effect on the test loss, in nats per token."""
    cuts = pl.col("model").str.json_path_match("$.cell.cuts").str.json_decode(pl.List(pl.String))
    runs = lmzoo.runs(study).filter("chosen").with_columns(cuts=cuts.list.sort())
    points = runs.drop_nulls("cuts").group_by("cuts").agg(pl.col("test").mean())
    names = points["cuts"].explode().drop_nulls().unique().sort().to_list()
    terms = [*combinations(names, 1), *combinations(names, 2)]
    return pl.concat(effect(points, term) for term in terms).filter(pl.col("designs") > 0)


def effect(points: pl.DataFrame, term: tuple[str, ...]) -> pl.DataFrame:
    """Return the mean over all designs: points whose other cuts are equal."""
    sign = pl.lit(1)
    for cut in term:  # + where the cut is made, − where it is not
        sign = sign * pl.when(pl.col("cuts").list.contains(cut)).then(1).otherwise(-1)
    rest = pl.col("cuts").list.set_difference([*term]).list.sort().list.join("+")
    designs = points.group_by(rest).agg(change=(sign * pl.col("test")).sum(), points=pl.len())
    whole = designs.filter(pl.col("points") == 2 ** len(term))
    return whole.select(
        cut=pl.lit(" × ".join(term)), effect=pl.col("change").mean(), designs=pl.len()
    )


def main(study: str) -> None:
    """Print effects and interactions, the largest first."""
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=240, fmt_str_lengths=99,
        float_precision=4, tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True,
    ):  # fmt: skip
        print(effects(study).sort(pl.col("effect").abs(), descending=True))


if __name__ == "__main__":
    run_command(main)
