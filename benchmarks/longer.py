"""What the last doubling of the epochs says of the next one, on recorded curves.

    python -m benchmarks.longer

`long_curves/gru.ndjson.gz` has the minimal gated unit and its cuts on captions: 40 epochs at a
constant rate, and 10, 20 and 40 epochs of a cosine rate. The other files have 10 and 12 epochs at
constant rates. A row is a study and its first n epochs; a point is a mean of seeds.

    last, next   what the last doubling brought, and the next one: the median of the points
    predicted    of the next one
    held         points whose next doubling brings between 0 and what the last one brought
    moved, moves how far the last doubling moved the differences, and the next one
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmzoo.base.command_line import run_command
from lmzoo.base.streams import echo
from lmzoo.lab.statistics.longer import longer

Array = NDArray[np.float64]
HERE = Path(__file__).parent
OTHERS = ("curves/gru_ablation_captions", "curves/cells_multi30k_words")


def tables(name: str) -> dict[str, dict[str, Array]]:
    """Return recipe -> point -> mean curve of a file; the point named first is the reference."""
    found: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(HERE / f"{name}.ndjson.gz", "rt") as lines:
        for line in lines:
            run = json.loads(line)
            curve = run["valid"]
            if curve and None not in curve:
                recipe = f"{run.get('schedule', name)} {len(curve)} {run['lr']}"
                found[recipe][run["point"]].append(curve)
    return {
        recipe: {point: np.mean(curves, 0) for point, curves in points.items()}
        for recipe, points in found.items()
    }


def pairs() -> Iterator[tuple[str, Array, Array]]:
    """Yield a name, the curves (P, n), and the losses (P,) after 2 n epochs."""
    long = tables("long_curves/gru")
    cosine = {len(next(iter(own.values()))): own for name, own in long.items() if "cosine" in name}
    for n, own in cosine.items():
        if 2 * n in cosine:
            later = cosine[2 * n]
            yield f"cosine, {n}", np.stack([*own.values()]), np.array([later[p][-1] for p in own])
    constant = [(name, own) for name, own in long.items() if "cosine" not in name]
    others = [(name, own) for file in OTHERS for name, own in tables(file).items()]
    for name, own in (*constant, *others):
        curves = np.stack([*own.values()])
        for n in (4, 5, 6, 10, 20):
            if 2 * n <= curves.shape[1] and (curves.shape[1] % n == 0 or n == 4):
                yield f"{name}, {n}", curves[:, :n], curves[:, 2 * n - 1]


def main() -> None:
    """Print a row for each study and number of epochs."""
    totals = []
    for name, curves, later in pairs():
        n = curves.shape[1]
        found = longer(curves, 0, 0.02)
        half = (curves[:, n // 2 - 1] + curves[:, (n + 1) // 2 - 1]) / 2
        last = half - curves[:, -1]
        gains = curves[:, -1] - later
        held = float(((gains >= 0) & (gains <= last)).mean())
        moves = np.delete(gains - gains[0], 0)
        moved = float(np.sqrt((moves**2).mean()))
        totals.append((held, moved <= found.moved, np.median(gains) <= found.gain))
        echo(
            f"{name} epochs: last {found.gain:.3f}, next {np.median(gains):.3f}, held {held:.2f}, "
            f"moved {found.moved:.3f}, moves {moved:.3f}; asks for {found.epochs}"
        )
    held, moved, gained = np.mean(totals, 0)
    echo(
        f"{len(totals)} rows: held {held:.2f}; the next doubling brought at most what the last one "
        f"did in {gained:.2f} of them, and moved differences no further in {moved:.2f}"
    )


if __name__ == "__main__":
    run_command(main)
