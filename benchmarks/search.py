"""Ways of choosing a setting, compared by simulated studies drawn from recorded trainings.

    python benchmarks/search.py [FILE.ndjson.gz ...]

A line of a file is one training: point, rate, seed, validation loss after every epoch, test loss.
A simulated study draws five seeds that confirm and, from the others, the seed that tunes each
point. The case `mixture` has the points of two files. The truth of a setting is its mean
test loss over all seeds.

    regret   truth of the chosen setting less that of the best one, in nats; mean and 95 % quantile
    same     share of points where the choice is that of the same rule without early stopping
    kept     share of points where that choice was trained to the end
    epochs   epochs of tuning a point, and the same in full runs
    alarms   share of contrasts called significant (5 %) by a paired t-test over the confirm seeds,
             with the stated tuning sd of both points, of those whose truth, at the best settings,
             is below 0.02 nats; the rule `best setting, known` says how many of them are right,
             because a difference below 0.02 may be real

An interval is a bootstrap over the simulated studies. It holds the noise of the simulation, not
that of the recorded points, which are few.
"""

import gzip
import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import optuna
import typer
from numpy.typing import NDArray
from scipy import stats
from search_rules import RULES, Array, Outcome, Rule

from lmzoo.command_line import run_command
from lmzoo.errors import UserError
from lmzoo.statistics.responses import fit_responses

CURVES = Path(__file__).parent / "curves"
MIXTURE = ("captions", "words")
CONFIRM, SMALL, LEVEL, RESAMPLES = 5, 0.02, 0.05, 1000


class Recorded(NamedTuple):
    """The trainings of P points at J rates with S seeds."""

    rates: list[float]
    curves: Array
    """Lowest validation loss up to each epoch, (P, J, S, E)."""
    test: Array
    """Test loss, (P, J, S)."""


class Drawn(NamedTuple):
    """The simulated study: lists over its points."""

    curves: list[Array]
    truth: Array
    """Mean test loss, (P, J)."""
    confirm: Array
    """Test losses of the confirm seeds, (P, J, 5)."""
    file: NDArray[np.int64]
    """The file of each point; losses of different files are not compared, (P,)."""


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Recorded trainings.")] = None,
    studies: Annotated[int, typer.Option(min=2, help="Studies of each case and rule.")] = 300,
    out: Annotated[Path, typer.Option(help="The table.")] = Path("runs/bench/search.md"),
) -> None:
    """Simulate, print the table and write it."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    loaded = {_name(path): load(path) for path in files or sorted(CURVES.glob("*.ndjson.gz"))}
    cases = {name: [recorded] for name, recorded in loaded.items()}
    if loaded.keys() >= set(MIXTURE):
        cases["mixture"] = [loaded[name] for name in MIXTURE]
    lines = list[str]()

    def add(line: str) -> None:
        typer.echo(line)
        lines.append(f"{line}\n")

    add("| case | rule | regret | 95 % | same | kept | epochs | full runs | alarms |")
    add("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for case, (name, rule) in itertools.product(cases, RULES.items()):
        measured = measure(cases[case], rule, studies)
        cells = [case, name, *(show(key, value) for key, value in measured.items())]
        add(f"| {' | '.join(cells)} |")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(lines))
    for points in (12, 240):
        typer.echo(f"fit of {points} x 5: {seconds(points):.2f} s")


def load(path: Path) -> Recorded:
    """Read a file; a diverged epoch or test has the loss infinity."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    names, rates, seeds = (sorted({row[key] for row in rows}) for key in ("point", "lr", "seed"))
    shape = len(names), len(rates), len(seeds)
    epochs = max(len(row["valid"]) for row in rows)
    curves, test = np.full((*shape, epochs), np.inf), np.full(shape, np.nan)
    for row in rows:
        at = names.index(row["point"]), rates.index(row["lr"]), seeds.index(row["seed"])
        valid = [np.inf if loss is None else loss for loss in row["valid"]]
        curves[at][: len(valid)] = valid
        test[at] = np.inf if row["test"] is None else row["test"]
    if np.isnan(test).any() or len(seeds) <= CONFIRM:
        raise UserError(
            f"{path}: every point needs all rates and more than {CONFIRM} seeds; complete the file"
        )
    return Recorded(rates, np.minimum.accumulate(curves, -1), test)


def draw(case: list[Recorded], rng: np.random.Generator, *, one_seed: bool) -> Drawn:
    """Draw a study; with `one_seed`, the points of a file have the same tuning seed."""
    curves, truth, confirm, file = list[Array](), [], [], list[int]()
    for f, recorded in enumerate(case):
        points, _, seeds = recorded.test.shape
        order = rng.permutation(seeds)
        tuning = rng.choice(order[CONFIRM:], points)
        for p in range(points):
            curves.append(recorded.curves[p][:, tuning[0 if one_seed else p]])
            truth.append(recorded.test[p].mean(1))
            confirm.append(recorded.test[p][:, order[:CONFIRM]])
            file.append(f)
    return Drawn(curves, np.array(truth), np.array(confirm), np.array(file))


def measure(case: list[Recorded], rule: Rule, studies: int) -> dict[str, list[float]]:
    """Return each measure as its value and the ends of its interval."""
    kinds = ("regret", "same", "kept", "epochs", "runs", "alarms")
    results: dict[str, list[Array]] = {kind: [] for kind in kinds}
    for n in range(studies):
        study = draw(case, np.random.default_rng(n), one_seed=rule.one_seed)
        points = np.arange(len(study.truth))
        got = full = rule.apply(study.curves, study.truth, case[0].rates, n)
        if rule.stops:
            full = rule._replace(stops=False).apply(study.curves, study.truth, case[0].rates, n)
        results["regret"].append(study.truth[points, got.best] - study.truth.min(1))
        results["same"].append((got.best == full.best).astype(float))
        results["kept"].append(got.finished[points, full.best].astype(float))
        results["epochs"].append(got.epochs)
        lengths = np.array([curve.shape[1] for curve in study.curves])
        results["runs"].append(got.epochs / lengths)
        results["alarms"].append(alarms(study, got))
    arrays = {kind: np.array(values) for kind, values in results.items()}
    return intervals(arrays, studies)


def alarms(study: Drawn, got: Outcome) -> Array:
    """Return whether each contrast whose truth is small is called significant."""
    pairs = itertools.combinations(range(len(got.best)), 2)
    least = study.truth.min(1)
    small = [
        (p, q)
        for p, q in pairs
        if study.file[p] == study.file[q] and abs(least[p] - least[q]) < SMALL
    ]
    losses = study.confirm[np.arange(len(got.best)), got.best]
    d = np.array([losses[p] - losses[q] for p, q in small]).reshape(-1, CONFIRM)
    tuning = np.array([got.tuning_sd[p] ** 2 + got.tuning_sd[q] ** 2 for p, q in small])
    noise = d.var(1, ddof=1) / CONFIRM
    freedom = (CONFIRM - 1) * ((noise + tuning) / noise) ** 2  # Satterthwaite; tuning is known
    t = np.abs(d.mean(1)) / np.sqrt(noise + tuning)
    return (2 * stats.t.sf(t, freedom) < LEVEL).astype(float)


def intervals(results: Mapping[str, Array], studies: int) -> dict[str, list[float]]:
    """Return [value, low, high] of each measure; rows of the arrays are studies."""
    picks = np.random.default_rng(0).integers(studies, size=(RESAMPLES, studies))
    found = {}
    for kind, values in results.items():
        means = values.mean(1)
        found[kind] = [values.mean(), *np.quantile(means[picks].mean(1), [0.025, 0.975])]
        if kind == "regret":
            again = [np.quantile(values[pick], 0.95) for pick in picks]
            found["high"] = [np.quantile(values, 0.95), *np.quantile(again, [0.025, 0.975])]
    return {kind: [float(x) for x in triple] for kind, triple in found.items()}


def show(key: str, value: list[float]) -> str:
    """Return a cell: the value and its interval."""
    if key in ("same", "kept", "alarms"):
        return "{:.1f} % ({:.1f} to {:.1f})".format(*(100 * x for x in value))
    digits = {"regret": 4, "high": 3, "epochs": 1, "runs": 2}[key]
    return "{0:.{3}f} ({1:.{3}f} to {2:.{3}f})".format(*value, digits)


def seconds(points: int) -> float:
    """Return the wall time of a fit of noisy parabolas, a fifth of the losses missing."""
    rng = np.random.default_rng(0)
    x = np.linspace(-0.8, 0.8, 5)
    losses = 2 + 0.1 * (x - 0.3 * rng.standard_normal((points, 1))) ** 2
    losses += 0.03 * rng.standard_normal(losses.shape)
    losses[np.arange(points), rng.integers(5, size=points)] = np.nan
    begin = time.perf_counter()
    fit_responses(losses, x[:, None])
    return time.perf_counter() - begin


def _name(path: Path) -> str:
    """Return the last word of the file's name."""
    return path.name.split(".")[0].rsplit("_", 1)[-1]


if __name__ == "__main__":
    run_command(main)
