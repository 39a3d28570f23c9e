"""What a cut costs a trained model, beside what training without the part costs.

    lmzoo ablate gru_ablation
    python analysis/after_training.py gru_ablation

The rank correlation has an interval by Fisher's z with the variance 1.06 / (n - 3) of Fieller et
al. 1957, over the cuts as they are: it does not cover the seeds.
"""

import math

import numpy as np
import polars as pl

import lmzoo
from lmzoo.base.command_line import run_command

COSTS = ("after_training", "difference")


def costs(study: str) -> pl.DataFrame:
    """Return one row a cut, with both costs; the one that trained models miss most is first."""
    ranked = lmzoo.rank(study, after_training=True)
    ends = [f"{name}_{end}" for name in COSTS for end in ("low", "high")]
    known = ranked.drop_nulls(COSTS).select("label", "verdict", *COSTS, *ends)
    return known.sort("after_training", descending=True)


def correlation(table: pl.DataFrame) -> tuple[float, float, float]:
    """Return the rank correlation of the two costs, and its interval."""
    found = float(np.corrcoef(table[COSTS[0]].rank(), table[COSTS[1]].rank())[0, 1])
    if len(table) < 4 or abs(found) == 1:
        return found, -1.0, 1.0
    half = 1.96 * math.sqrt(1.06 / (len(table) - 3))
    z = math.atanh(found)
    return found, math.tanh(z - half), math.tanh(z + half)


def main(study: str) -> None:
    """Print the costs, and their rank correlation."""
    table = costs(study)
    with pl.Config(tbl_rows=-1, fmt_str_lengths=99, float_precision=4):
        print(table)
    found, low, high = correlation(table)
    print(f"rank correlation {found:.2f} [{low:.2f}, {high:.2f}] of {len(table)} cuts")


if __name__ == "__main__":
    run_command(main)
