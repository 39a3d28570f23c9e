"""Evaluate the runs of a study of a contiguous text on windows that are longer than its blocks.

    python tools/lengths.py runs/positions-shakespeare_char --data-dir DIR --block 512

Each window of the test text begins without a context. The columns are the mean losses of its
characters between two places, as a mean over the chosen runs of a point, with the half-width of a
95 % interval over these runs. A model that cannot use more context has equal columns.
"""

from itertools import pairwise
from pathlib import Path

import polars as pl
import torch
from scipy import stats

import lmzoo
from lmzoo.base.command_line import run_command
from lmzoo.data.corpus import open_corpus
from lmzoo.train.trained import load_run


@torch.no_grad()
def losses(folder: str, data: Path | None, block: int) -> dict[str, float]:
    """Return the mean loss of the characters of each part of a window: its last place -> nats."""
    run = load_run(Path(folder), data)
    test = open_corpus({**run.config["corpus"], "block": block}, data).test
    parts = zip(test.ids.split(50), test.lengths.split(50), strict=True)
    scores = [run.model.log_prob(ids.long(), count) for ids, count in parts]
    nll = -torch.cat(scores)[:-1, 1:].double().mean(0)
    ends = [64 * 2**i for i in range(20) if 64 * 2**i < block] + [block]
    return {f"{a + 1} to {b}": float(nll[a:b].mean()) for a, b in pairwise([0, *ends])}


def table(study: str, data: Path | None, block: int) -> pl.DataFrame:
    """Return one row a point and part of a window."""
    runs = lmzoo.runs(study).filter("chosen", pl.col("parameters") > 0)
    rows = [
        {"label": label, "places": places, "loss": loss}
        for label, folder in runs.select("label", "folder").rows()
        for places, loss in losses(folder, data, block).items()
    ]
    points = pl.DataFrame(rows).group_by("label", "places", maintain_order=True)
    parts = points.agg(pl.col("loss").mean(), sd=pl.col("loss").std(), seeds=pl.len())
    half = [stats.t.ppf(0.975, n - 1) * sd / n**0.5 for sd, n in parts.select("sd", "seeds").rows()]
    return parts.with_columns(half=pl.Series(half))


def main(study: str, data_dir: Path | None = None, block: int = 512) -> None:
    """Print the losses, one column for each part of a window."""
    found = pl.format("{} ±{}", pl.col("loss").round(3), pl.col("half").round(3))
    parts = table(study, data_dir, block).with_columns(found=found)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, tbl_hide_dataframe_shape=True):
        print(parts.pivot("places", index="label", values="found"))  # noqa: T201


if __name__ == "__main__":
    run_command(main)
