"""How well the verdicts of one study agree with those of its repetitions with other study seeds.

    for k in 1 2 3 4 5 6 7 8; do
        python sweeps/gru_ablation.py --seed $k --out runs/repeats/$k
    done
    python benchmarks/repeats.py runs/repeats/*/gru_ablation-captions

An interval of a difference should hold the mean difference of the other studies in 95 % of cases.
No contrast may be called better in one study and worse in another.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points


def main(stores: Annotated[list[Path], typer.Argument(help="Stores of the repetitions.")]) -> None:
    """Compare the differences and verdicts of repeated studies."""
    if len(stores) < 3:
        raise UserError(f"{len(stores)} stores are too few to compare; give three or more")
    studies = []
    for store in stores:
        folder = load_study(store)
        table = rank_points(folder.runs, folder.events, folder.study)
        # The reference and the count baselines have no verdict.
        studies.append({row["label"]: row for row in table.to_dicts() if row["verdict"]})
    labels = [label for label in studies[0] if all(label in study for study in studies)]
    shown = Table("point", "difference", "sd", "± of one study", "inside", "verdicts", box=None)
    inside = []
    for label in labels:
        rows = [study[label] for study in studies]
        mean, low, high = (
            np.array([row[key] for row in rows])
            for key in ("difference", "difference_low", "difference_high")
        )
        others = (mean.sum() - mean) / (len(rows) - 1)
        held = (low <= others) & (others <= high)
        inside += [*held]
        verdicts = Counter(str(row["verdict"]) for row in rows)
        words = ", ".join(f"{word} {count}" for word, count in verdicts.most_common())
        numbers = f"{mean.mean():+.3f}", f"{mean.std(ddof=1):.3f}", f"{(high - low).mean() / 2:.3f}"
        shown.add_row(label, *numbers, f"{held.sum()} of {len(rows)}", words)
    console = Console(width=120)
    console.print(shown)
    console.print(f"intervals that hold the mean of the other studies: {np.mean(inside):.3f}")


if __name__ == "__main__":
    run_command(main)
