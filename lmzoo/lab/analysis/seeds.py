"""The losses of points as an array, a column for each seed.

A pivot of polars makes a column of a frame for each seed, which takes seconds at thousands of them.
"""

from math import nan

import numpy as np
from polars import DataFrame, Float64, Series, col

from lmzoo.lab.statistics.intervals import Array


def by_seed(runs: DataFrame, points: Series) -> Array:
    """Return the losses (P, S) of these points, in the order of the seeds; NaN without a run.

    `runs` has point, seed and loss; several of one point and seed count with their mean.
    """
    rows = DataFrame({"point": points}).with_row_index("row")
    seeds = runs.select(col("seed").unique().sort())
    columns = seeds.with_row_index("column")
    shape = (len(rows), len(columns))
    losses = np.full(shape, nan, order="F")
    loss = col("loss").cast(Float64)
    means = runs.group_by("point", "seed").agg(loss.mean())
    own = means.join(rows, on="point")
    own = own.join(columns, on="seed")
    losses[own["row"], own["column"]] = own["loss"]
    return losses
