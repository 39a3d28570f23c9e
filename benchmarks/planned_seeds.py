"""Planned seeds against those that the verdicts need, with the noise of the recorded studies.

    python benchmarks/planned_seeds.py [repetitions [simulations [pilot seeds]]]

The true variances of a study are drawn from what its records say of them (`statistics/noise.py`). A
pilot of as many seeds as were recorded, or of another number, is drawn with them, and a contrast is
planned for an effect of 1 and of 2 sd of its difference. Simulated studies then have 0.7 and 1.3
times the planned seeds: the plan is within ±30 % if the first show the effect in less than 80 % of
cases, and the second in at least as many. The range of a plan holds the need if one seed less than
its least shows the effect in less than 80 % of cases, and its most seeds in at least as many.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from lmzoo.errors import UserError
from lmzoo.judging.plan import pilot_of_study
from lmzoo.statistics.compared import compared
from lmzoo.statistics.noise import Noise, seed_noise
from lmzoo.statistics.power import planned_seeds
from lmzoo.streams import echo

POWER, STEP = 0.8, np.log(2) / 2
"""STEP: of the logarithms of the variances, in `noise.py`."""


def true_variances(noise: Noise, rng: np.random.Generator) -> np.ndarray:
    """Return a draw of the variances of all points; NaN without seeds."""
    weight = noise.weight[:, rng.choice(len(noise.model), p=noise.model)]
    drawn = [np.nan if np.isnan(w).any() else rng.choice(noise.variance, p=w / w.sum())
             for w in weight]  # fmt: skip
    return np.array(drawn) * np.exp(rng.uniform(-STEP / 2, STEP / 2, len(drawn)))


def shown(
    v: np.ndarray, reference: int, point: int, effect: float, n: int, count: int,
    rng: np.random.Generator,
) -> float:  # fmt: skip
    """Return how often `compared` shows the effect of a point with n seeds."""
    hits = 0
    for _ in range(count):
        x = np.sqrt(v)[:, None] * rng.normal(size=(len(v), n))
        x[point] += effect
        hits += int(compared(x, reference, margin=0.0).sign[point] > 0)
    return hits / count


def main(repetitions: int, count: int, pilot_seeds: int) -> None:
    """Print one line per plan, and the shares of plans that are right, too few, too many."""
    verdicts: Counter[str] = Counter()
    ranges: Counter[str] = Counter()
    for path in sorted(Path("docs/results/records").glob("*.parquet")):
        try:
            pilot = pilot_of_study(path)
        except UserError:
            continue
        asked = pilot.asked | (np.arange(len(pilot.labels)) == pilot.reference)
        kept = np.flatnonzero(asked & (np.isfinite(pilot.losses).sum(1) > 2))
        recorded = pilot.losses[kept]
        noise = seed_noise(recorded)
        if pilot.reference not in kept or noise is None:
            continue
        reference = int(np.flatnonzero(kept == pilot.reference)[0])
        seeds = pilot_seeds or int(np.isfinite(recorded).sum(1).min())
        rng = np.random.default_rng(0)
        for _ in range(repetitions):
            v = true_variances(noise, rng)
            points = [i for i in range(len(v)) if i != reference and v[i] + v[reference] > 0]
            if not points or np.isnan(v).any():
                continue
            point = rng.choice(points)
            x = np.sqrt(v)[:, None] * rng.normal(size=(len(v), seeds))
            for effect_in_sd in (1.0, 2.0):
                effect = effect_in_sd * float(np.sqrt(v[point] + v[reference]))
                plan = planned_seeds(x, reference, effect, POWER)
                planned, least, most = (
                    int(np.nan_to_num(own[point], nan=1000))
                    for own in (plan.seeds, plan.least, plan.most)
                )
                low, high = int(0.7 * planned), int(np.ceil(1.3 * planned))
                at = {
                    n: shown(v, reference, point, effect, n, count, rng) if n > 1 else 0.0
                    for n in {low, high, least - 1, most}
                }
                verdict = (
                    "too many" if at[low] >= POWER else "too few" if at[high] < POWER else "right"
                )
                verdicts[verdict] += 1
                ranges[
                    "below" if at[least - 1] >= POWER else "above" if at[most] < POWER else "in"
                ] += 1
                echo(f"{path.stem:34} {effect_in_sd:g} sd  planned {planned:3.0f}  "
                     f"{low}: {at[low]:.2f}  {high}: {at[high]:.2f}  {verdict}  "
                     f"range {least} to {most}")  # fmt: skip
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    echo(f"{verdicts.total()} plans: {counts}; the need is in {ranges['in']} ranges, below "
         f"{ranges['below']}, above {ranges['above']}")  # fmt: skip


if __name__ == "__main__":
    main(*(int(text) for text in (*sys.argv[1:], *("4", "60", "0")[len(sys.argv) - 1 :])))
