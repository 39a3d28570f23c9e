"""Estimate the effect of each cut of a study's first cell, and the interaction of each pair.

    python analysis/epistasis.py gru_ablation

The effect of a cut is the mean change of the loss over all pairs of points that differ in this cut
only. An interaction is how much a second cut changes it: the mean over all squares of points. Each
is taken within a seed; its 95 % interval is a t-interval over the seeds that all points have.
"""

from itertools import combinations

import polars as pl
from scipy import stats

import lmzoo
from lmzoo.base.command_line import run_command


def effects(study: str) -> pl.DataFrame:
    """Return one row a cut and a pair of cuts: its effect on the test loss, in nats per token."""
    field = pl.col("model").str.json_path_match
    cell, cuts = field("$.cell.name"), field("$.cell.cuts").str.json_decode(pl.List(pl.String))
    runs = lmzoo.runs(study).filter("chosen").select("seed", "test", cell=cell, cuts=cuts)
    runs = runs.drop_nulls().filter(pl.col("cell") == pl.col("cell").first())
    if not (names := runs["cuts"].explode().drop_nulls().unique().sort().to_list()):
        raise lmzoo.UserError(f"{study} has no tested points with cuts; give a study of cuts")
    found = pl.concat(effect(runs, (*t,)) for n in (1, 2) for t in combinations(names, n))
    return found.with_columns(pl.col("half") * stats.t.ppf(0.975, found["seeds"].to_numpy() - 1.0))


def effect(runs: pl.DataFrame, cuts: tuple[str, ...]) -> pl.DataFrame:
    """Return the mean over all designs: points whose other cuts are equal; `half`: its error."""
    sign = pl.lit(1)
    for cut in cuts:  # + where the cut is made, − where it is not
        sign = sign * pl.when(pl.col("cuts").list.contains(cut)).then(1).otherwise(-1)
    rest = pl.col("cuts").list.set_difference([*cuts]).list.sort().list.join("+")
    designs = runs.group_by("seed", rest).agg(change=(sign * pl.col("test")).sum(), n=pl.len())
    seeds = designs.filter(n=2 ** len(cuts)).group_by("seed").agg(pl.col("change").mean(), pl.len())
    seeds, change = seeds.filter(pl.col("len") == pl.col("len").max()), pl.col("change")
    error, name = change.std() / change.len().sqrt(), pl.lit(" × ".join(cuts))
    own = seeds.select(cut=name, effect=change.mean(), half=error, seeds=pl.len(), n=pl.max("len"))
    return own.rename({"n": "designs"}).filter(pl.col("seeds") > 0)


def main(study: str) -> None:
    """Print effects and interactions, the largest first."""
    with pl.Config(tbl_rows=-1, tbl_width_chars=240, fmt_str_lengths=99, float_precision=4):
        print(effects(study).sort(pl.col("effect").abs(), descending=True))


if __name__ == "__main__":
    run_command(main)
