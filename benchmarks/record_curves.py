"""Record trainings for `search.py`: each point of a study, five learning rates, some seeds.

    python benchmarks/record_curves.py sweeps/gru_ablation.py curves/NAME.ndjson.gz \
        --store runs/curves -- --seeds 8 --set recipe.schedule=cosine

The options after `--` are those of the sweep. Each rate is a sweep without search, in a store of
its own; an interrupted recording continues where it was. Choose rates on both sides of the best
ones.
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from lmzoo.analysis.records.load import load_study
from lmzoo.command_line import run_command
from lmzoo.errors import UserError
from lmzoo.store.records import STUDY

RATES = [0.003, 0.006, 0.012, 0.024, 0.048]
DIGITS = 5


def main(
    script: Annotated[Path, typer.Argument(help="The study's script.")],
    out: Annotated[Path, typer.Argument(help="The file to write, .ndjson.gz.")],
    options: Annotated[list[str] | None, typer.Argument(help="Options of the sweep.")] = None,
    store: Annotated[Path, typer.Option(help="Folder of the sweeps.")] = Path("runs/curves"),
    rate: Annotated[list[float], typer.Option(help="A learning rate; repeatable.")] = RATES,
) -> None:
    """Train at every rate and write one line for each training."""
    rows = list[dict[str, Any]]()
    for lr in sorted(rate):
        folder = store / out.name.partition(".")[0] / str(lr)
        command = [sys.executable, str(script), "--storage", str(folder), *(options or [])]
        command += ["--set", f"recipe.lr={lr}", "--search-space", "recipe.lr=off"]
        code = subprocess.run([*command, "--samples", "1"]).returncode
        if code:
            raise UserError(f"the sweep of the rate {lr} ended with code {code}; see its messages")
        (study,) = folder.glob(f"*/{STUDY}")
        rows += trainings(study.parent, lr)
    out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(out, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    typer.echo(f"{len(rows)} trainings: {out}")


def trainings(study: Path, rate: float) -> list[dict[str, Any]]:
    """Return point, rate, seed, validation losses, best epoch and test loss of each training."""
    loaded = load_study(study)
    runs = loaded.runs.lazy().filter(pl.col("stage") == "confirm").collect()
    labels = {point["id"]: point["label"] for point in loaded.study["points"]}
    lines = loaded.events.lazy().sort("epoch").collect()
    found = []
    for run, point, seed in runs.select("run", "point", "seed").sort("point", "seed").rows():
        events = lines.filter(pl.col("run") == run)
        valid = events.filter(pl.col("event") == "epoch")["valid_token"]
        if len(valid) == 1:  # a count model is fitted in one pass
            continue
        (test,) = events.filter(pl.col("event") == "test").select("best_epoch", "token").rows()
        losses = {"valid": [_rounded(loss) for loss in valid], "test": _rounded(test[1])}
        found.append({"point": labels[point], "lr": rate, "seed": seed, "best": test[0], **losses})
    return found


def _rounded(loss: float | None) -> float | None:
    """Return the loss with five digits; None if it is not finite."""
    return None if loss is None or not abs(loss) < float("inf") else round(loss, DIGITS)


if __name__ == "__main__":
    run_command(main)
