"""Planned seeds against those that the verdicts need, over the recorded studies.

    python benchmarks/planned_seeds.py [simulations]

Each contrast of a study is planned for an effect of 1 and of 2 sd of its difference. Simulated
studies with the recorded spreads then have 0.7 and 1.3 times the planned seeds: the plan is within
±30 % if the first show the effect in less than 80 % of cases, and the second in at least as many.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from lmzoo.errors import UserError
from lmzoo.judging.plan import pilot_of_study
from lmzoo.statistics.compared import compared
from lmzoo.statistics.power import planned_seeds
from lmzoo.streams import echo

POWER, CONTRASTS = 0.8, 2


def shown(sd: np.ndarray, reference: int, point: int, effect: float, n: int, count: int) -> float:
    """Return how often `compared` shows the effect of a point with n seeds."""
    rng = np.random.default_rng(point)
    hits = 0
    for _ in range(count):
        x = sd[:, None] * rng.normal(size=(len(sd), n))
        x[point] += effect
        hits += int(compared(x, reference, margin=0.0).sign[point] > 0)
    return hits / count


def main(count: int) -> None:
    """Print one line per contrast, and the shares of plans that are right, too few, too many."""
    verdicts: Counter[str] = Counter()
    for path in sorted(Path("docs/results/records").glob("*.parquet")):
        try:
            pilot = pilot_of_study(path)
        except UserError:
            continue
        kept = np.flatnonzero(
            (pilot.asked | (np.arange(len(pilot.labels)) == pilot.reference))
            & (np.isfinite(pilot.losses).sum(1) > 2)
        )
        if pilot.reference not in kept or len(kept) < 2:
            continue
        reference = int(np.flatnonzero(kept == pilot.reference)[0])
        x = np.where(np.isfinite(pilot.losses), pilot.losses, np.nan)[kept]
        own = x - np.nanmean(x, 1, keepdims=True)
        common = np.nanmedian(own, 0) if len(x) > 3 else 0.0  # what all points share
        sd = np.nanstd(own - common, axis=1, ddof=1)
        for effect_in_sd in (1.0, 2.0):
            _, one = planned_seeds(x, reference, 1.0)
            for point in [i for i in range(len(kept)) if i != reference and one[i] > 0][:CONTRASTS]:
                effect = effect_in_sd * float(np.hypot(sd[point], sd[reference]))
                planned = planned_seeds(x, reference, effect, POWER)[0][point]
                if np.isnan(planned) or not effect > 0:
                    continue
                low, high = int(0.7 * planned), int(np.ceil(1.3 * planned))
                least = shown(sd, reference, point, effect, low, count) if low > 1 else 0.0
                most = shown(sd, reference, point, effect, high, count)
                verdict = "too many" if least >= POWER else "too few" if most < POWER else "right"
                verdicts[verdict] += 1
                echo(f"{path.stem:34} {effect_in_sd:g} sd  planned {planned:3.0f}  "
                      f"{low}: {least:.2f}  {high}: {most:.2f}  {verdict}")  # fmt: skip
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    echo(f"{verdicts.total()} plans: {counts}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
