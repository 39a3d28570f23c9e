"""A series of candidates: how often a candidate without an effect is kept, and what finds effects.

    python -m benchmarks.stream --streams 400

A stream has 1,000 candidates that change nothing. A loss is a number of the seed plus noise; the sd
of both, and the shape of the noise, are those of the points in `docs/results/records`. All
candidates of an incumbent share its runs. A kept candidate is the next incumbent, on new seeds.

    lmzoo judge --stream   looks at 3, 6, 12 and 24 seeds; LOND (`lmzoo/lab/statistics/stream.py`)
    lmzoo judge            the same looks, each candidate by itself
    keep if lower          one run of each
    mean of three          the mean of three runs of each is lower
    fixed five             paired t test of five seeds, 5 %

For 500 candidates of the first stream the fast test that is used here is compared with
`lmzoo.lab.judging.commands.decide`. The second table has one real effect,
in sd of a pair's difference, at several places of the series.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import special

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.lab.analysis.load import confirm_runs, load_study
from lmzoo.lab.judging.commands import KEEP, decide
from lmzoo.lab.statistics.compared import ERROR, looks, spend
from lmzoo.lab.statistics.stream import keep_level

Array = NDArray[np.float64]
RECORDS = Path(__file__).parents[1] / "docs/results/records"
SCHEDULE = spend(looks(3, 24))
SEEDS = [look.seeds for look in SCHEDULE]
PLACES = (1, 10, 100, 1000)
RULES = ("lmzoo judge --stream", "lmzoo judge", "keep if lower", "mean of three", "fixed five")
MOST_FIXED = 80
"""Seeds up to which a fixed number is looked for."""


class Noise:
    """The noise of recorded losses: that of a seed, common to all points, and a point's own."""

    def __init__(self) -> None:
        shapes: list[Array] = []
        self.sds: list[tuple[float, float]] = []
        for path in sorted(RECORDS.glob("*.parquet")):
            folder = load_study(path)
            try:
                confirm, _ = confirm_runs(folder.runs, folder.events, folder.study, "token")
            except UserError:
                continue
            wide = confirm.drop_nulls("loss").pivot("seed", index="point", values="loss")
            x = wide.drop("point").to_numpy()
            x = x[np.isfinite(x).all(1)]
            if min(x.shape, default=0) < 4:
                continue
            common = np.median(x - x.mean(1, keepdims=True), 0)
            own = x - x.mean(1, keepdims=True) - common
            sd = own.std(1, ddof=1)
            kept = sd > 0
            self.sds += [(float(common.std(ddof=1)), float(one)) for one in sd[kept]]
            size = np.sqrt(1 - 1 / x.shape[1])
            shapes.append((own[kept] / sd[kept, None] / size).ravel())
        self.shape = np.concatenate(shapes)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return noise of variance about one."""
        return rng.choice(self.shape, shape)


def p_values(difference: Array) -> tuple[Array, Array]:
    """Return p of each look and the sign: paired t tests; differences (N, S)."""
    p, side = [], []
    for n in SEEDS:
        d = difference[:, :n]
        t = d.mean(1) / (d.std(1, ddof=1) / np.sqrt(n))
        p.append(2 * special.stdtr(n - 1, -np.abs(t)))
        side.append(np.sign(t))
    return np.array(p).T, np.array(side).T


def keeps(difference: Array, level: Array | float) -> tuple[NDArray[np.bool_], Array]:
    """Return which candidates are kept at these levels, and the seeds that each needs.

    A candidate ends when it is kept, or is shown to be worse at the usual level.
    """
    p, side = p_values(difference)
    errors = np.array([look.error for look in SCHEDULE])
    own = np.asarray(level)[..., None] * errors / errors.sum()
    better, worse = (p < own) & (side < 0), (p < errors) & (side > 0)
    end = np.where((better | worse).any(1), (better | worse).argmax(1), len(SEEDS) - 1)
    kept = better[np.arange(len(p)), end]
    return kept, np.array(SEEDS)[end]


def series(draw: Callable[[int], Array], candidates: int) -> tuple[int, float]:
    """Return the keeps of a stream, and its mean seeds; each keep raises the later levels.

    `draw` returns the differences of candidates from an incumbent on new seeds.
    """
    kept, begin, seeds = 0, 0, np.zeros(candidates)
    while begin < candidates:
        level = np.array([keep_level(i, kept) for i in range(begin + 1, candidates + 1)])
        found, used = keeps(draw(candidates - begin), level)
        first = int(found.argmax()) if found.any() else len(found) - 1
        seeds[begin : begin + first + 1] = used[: first + 1]
        kept += int(found.any())
        begin += first + 1
    return kept, float(seeds.mean())


def nothing(streams: int, candidates: int, noise: Noise, rng: np.random.Generator) -> None:
    """Print how many candidates without an effect each rule keeps."""
    names = RULES
    kept = {name: np.zeros(streams) for name in names}
    seeds = {"keep if lower": 1.0, "mean of three": 3.0, "fixed five": 5.0}
    used: dict[str, list[float]] = {name: [] for name in names[:2]}
    for stream in range(streams):
        common, own = noise.sds[rng.integers(len(noise.sds))]

        def draw(count: int, common: float = common, own: float = own) -> Array:
            seed = common * noise.draw((1, SEEDS[-1]), rng)
            x = seed + own * noise.draw((count + 1, SEEDS[-1]), rng)
            return x[1:] - x[0]

        d = draw(candidates)
        if stream == 0:
            check(d[:500])
        kept[names[0]][stream], mean = series(draw, candidates)
        used[names[0]].append(mean)
        alone, mean_seeds = keeps(d, ERROR)
        kept[names[1]][stream] = alone.sum()
        used[names[1]].append(float(mean_seeds.mean()))
        kept[names[2]][stream] = (d[:, 0] < 0).sum()
        kept[names[3]][stream] = (d[:, :3].mean(1) < 0).sum()
        t = d[:, :5].mean(1) / (d[:, :5].std(1, ddof=1) / np.sqrt(5))
        kept[names[4]][stream] = ((2 * special.stdtr(4, -np.abs(t)) < ERROR) & (t < 0)).sum()
    echo(f"{streams} streams of {candidates} candidates without an effect\n")
    echo("| rule | streams with a false keep | false keeps of a stream | mean seeds |")
    echo("|---|---:|---:|---:|")
    for name in names:
        mean = seeds.get(name) or float(np.mean(used[name]))
        echo(f"| {name} | {(kept[name] > 0).mean():.1%} | {kept[name].mean():.3g} | {mean:.1f} |")


def effects(repeats: int, noise: Noise, rng: np.random.Generator) -> None:
    """Print power and mean seeds for real effects, and the fixed numbers of equal power."""
    echo("\n| effect, sd | fixed five | | power | seeds | fixed number of equal power |")
    echo("|---:|---:|---|---:|---:|---:|")
    shape = (repeats, MOST_FIXED)
    for size in (1, 2, 3):
        d = (noise.draw(shape, rng) - noise.draw(shape, rng)) / 2**0.5 - size
        five = fixed(d, 5, ERROR)
        for place in (0, *PLACES):
            level = keep_level(place, 0) if place else ERROR
            found, used = keeps(d, level)
            power = found.mean()
            n = next((n for n in range(2, MOST_FIXED + 1) if fixed(d, n, level) >= power), None)
            name = f"place {place}" if place else "alone"
            echo(f"| {size} | {five:.0%} | {name} | {power:.1%} | {used.mean():.1f} | {n} |")


def fixed(d: Array, n: int, level: float) -> float:
    """Return the power of a paired t test of n seeds."""
    t = d[:, :n].mean(1) / (d[:, :n].std(1, ddof=1) / np.sqrt(n))
    return float(((2 * special.stdtr(n - 1, -np.abs(t)) < level) & (t < 0)).mean())


def check(d: Array) -> None:
    """Check the fast test against the judge's own decision."""
    levels = np.geomspace(1e-4, 0.5, len(d))  # so that some are kept
    fast, _ = keeps(d, levels)
    slow = [
        decide(np.stack([np.zeros(len(x)), x]), SCHEDULE, 0.0, float(level))[0] == KEEP
        for x, level in zip(d, levels, strict=True)
    ]
    assert fast.tolist() == slow, "the judge decides otherwise"
    echo(f"equal decisions of the judge for all {len(d)} candidates; it keeps {sum(slow)}\n")


def main(
    streams: Annotated[int, typer.Option(min=1)] = 400,
    candidates: Annotated[int, typer.Option(min=1)] = 1000,
    effects_of: Annotated[int, typer.Option(min=1, help="Candidates with an effect.")] = 20_000,
) -> None:
    """Print both tables."""
    rng = np.random.default_rng(0)
    noise = Noise()
    nothing(streams, candidates, noise, rng)
    effects(effects_of, noise, rng)


if __name__ == "__main__":
    run_command(main)
