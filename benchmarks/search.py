"""Ways of choosing a setting, compared by simulated studies drawn from recorded trainings.

    python benchmarks/search.py [FILE.ndjson.gz ...]

A line of a file is one training: point, rate, seed, validation loss after every epoch, test loss.
A simulated study draws the tuning seeds of each point and five seeds that confirm. Between the
recorded rates, losses are interpolated; beyond them each step adds 0.06 nats. The truth of a rate
is its mean test loss over the seeds that did not tune.

    regret   truth of the chosen rate less that of the best recorded one, in nats; mean, 95 %
    runs     epochs of tuning a point, in full runs
    stated   root mean square of the stated tuning sd; `regret` has the root mean square next to it
    worse    share of studies in which the changed point, whose true difference from its own
             unchanged copy is 0, is shown to be worse than that copy, with five confirm seeds

Cases of a file: as recorded (`plain`); one point with its axis moved by 2x or 4x, `up` or `down`;
one point whose third and higher rates lose 1.5 nats (`cliff`). `mixture` has the points of captions
and words in one study.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import optuna
import typer
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from search_rules import RULES, STEP, Array, Rule, Trainings

from lmzoo.command_line import run_command
from lmzoo.errors import UserError
from lmzoo.statistics.compared import compared

CURVES = Path(__file__).parent / "curves"
MOVES = {"2x up": 1, "4x up": 2, "2x down": -1, "4x down": -2}
CLIFF, CONFIRM, MARGIN = 1.5, 5, 0.02


class Recorded(NamedTuple):
    """The trainings of P points at J rates with S seeds."""

    rates: Array
    curves: Array
    """Lowest validation loss up to each epoch, (P, J, S, E)."""
    test: Array
    """Test loss, (P, J, S)."""


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Recorded trainings.")] = None,
    studies: Annotated[int, typer.Option(min=2, help="Studies of each case and rule.")] = 150,
    first: Annotated[int, typer.Option(help="Seed of the first study.")] = 0,
    out: Annotated[Path, typer.Option(help="The table.")] = Path("runs/bench/search.md"),
    only: Annotated[str, typer.Option(help="Words of the cases; all by default.")] = "",
    rules: Annotated[str, typer.Option(help="Words of the rules; all by default.")] = "",
) -> None:
    """Simulate, print the table and write it."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    paths = files or sorted(CURVES.glob("*.ndjson.gz"))
    loaded = {path.name.split(".")[0].rsplit("_", 1)[-1]: load(path) for path in paths}
    lines = list[str]()

    def add(line: str) -> None:
        typer.echo(line)
        lines.append(f"{line}\n")

    add("| case | rule | studies | regret | 95 % | changed point | rms | stated | runs | worse |")
    add("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for case, (parts, changed) in cases(loaded).items():
        for name, rule in RULES.items():
            if only in case and rules in name:
                cells = measure(parts, changed, rule, range(first, first + studies))
                add(f"| {case} | {name} | {studies} | {' | '.join(cells)} |")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(lines))


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
    return Recorded(np.array(rates), np.minimum.accumulate(curves, -1), test)


def cases(loaded: dict[str, Recorded]) -> dict[str, tuple[list[Recorded], int]]:
    """Return the studies of each case and the number of the changed point; -1 if there is none."""
    found: dict[str, tuple[list[Recorded], int]] = {n: ([r], -1) for n, r in loaded.items()}
    if {"captions", "words"} <= loaded.keys():
        words, epochs = loaded["words"], loaded["captions"].curves.shape[-1]
        at = np.linspace(0, words.curves.shape[-1] - 1, epochs).round().astype(int)
        short = words._replace(curves=words.curves[..., at])
        found["mixture"] = ([loaded["captions"], short], -1)
        for name, point in (("captions", 5), ("words", 3)):
            for move, steps in MOVES.items():
                found[f"{name}, {move}"] = ([moved(loaded[name], point, steps)], point)
            found[f"{name}, cliff"] = ([with_cliff(loaded[name], point)], point)
    return found


def moved(recorded: Recorded, point: int, steps: int) -> Recorded:
    """Return the trainings with the axis of a point moved by a number of recorded rates."""
    curves, test = recorded.curves.copy(), recorded.test.copy()
    wanted = np.arange(len(recorded.rates)) - steps
    at = np.clip(wanted, 0, len(recorded.rates) - 1)
    beyond = np.abs(wanted - at) * STEP
    curves[point] = curves[point][at] + beyond[:, None, None]
    test[point] = test[point][at] + beyond[:, None]
    return Recorded(recorded.rates, curves, test)


def with_cliff(recorded: Recorded, point: int) -> Recorded:
    """Return the trainings with a cliff after the second rate of a point."""
    curves, test = recorded.curves.copy(), recorded.test.copy()
    curves[point, 2:] += CLIFF
    test[point, 2:] += CLIFF
    return Recorded(recorded.rates, curves, test)


def measure(parts: list[Recorded], changed: int, rule: Rule, studies: Sequence[int]) -> list[str]:
    """Return the cells of a row; `studies` are seeds."""
    regret, runs, stated, worse = list[Array](), list[float](), list[Array](), list[bool]()
    for n in studies:
        rng, own = np.random.default_rng(n), list[Trainings]()
        tests = [test for part in parts for test in part.test]
        for part in parts:
            for curves in part.curves:
                own.append(Trainings(part.rates, curves, rng.permutation(curves.shape[1])))
        got = rule(own, n)
        regret.append(
            np.array([_regret(*each) for each in zip(own, tests, got.rates, strict=True)])
        )
        runs.append(float(np.mean([t.epochs / t.curves.shape[-1] for t in own])))
        stated.append(got.tuning_sd)
        if changed >= 0:
            worse.append(_is_worse(own, tests, got.rates, got.tuning_sd, changed, rng))
    all_regret = np.array(regret)
    mean = all_regret.mean(1)
    cells = [_with_error(mean), f"{np.quantile(all_regret, 0.95):.3f}"]
    cells.append(_with_error(all_regret[:, changed]) if changed >= 0 else "")
    cells += [f"{np.sqrt((values**2).mean()):.4f}" for values in (all_regret, np.array(stated))]
    return [*cells, f"{np.mean(runs):.2f}", f"{100 * np.mean(worse):.0f} %" if worse else ""]


def _regret(own: Trainings, test: Array, rate: float) -> float:
    """Return the truth of a rate less that of the best recorded one."""
    used = own.order[: max(1, len(own.seeds))]
    rest = np.delete(test, used, 1).mean(1)
    return float(_at(own, rest, rate) - rest.min())


def _is_worse(
    own: list[Trainings], tests: list[Array], rates: Array, sd: Array, p: int,
    rng: np.random.Generator,
) -> bool:  # fmt: skip
    """Return whether a point is called worse than itself at its best rate.

    All points are in the test; the reference is the changed point at its best recorded rate, which
    the rule gets, with other seeds.
    """
    picks = [np.delete(t.order, np.arange(max(1, len(t.seeds)))) for t in own]
    rows = [
        _at(t, test, rate)[rng.permutation(pick)[:CONFIRM]]
        for t, test, rate, pick in zip(own, tests, rates, picks, strict=True)
    ]
    best = tests[p][int(tests[p].mean(1).argmin())]
    rows.append(best[rng.permutation(picks[p])[:CONFIRM]])
    found = compared(np.array(rows), len(own), tuning_sd=[*sd, 0.0], margin=MARGIN)
    return bool(found.sign[p] > 0)


def _at(own: Trainings, values: NDArray[np.float64], rate: float) -> Array:
    """Return values (J, ...) at a rate."""
    return own.at(rate, PchipInterpolator(np.log(own.rates), values, axis=0))


def _with_error(values: Array) -> str:
    return f"{values.mean():.4f} ±{values.std(ddof=1) / np.sqrt(len(values)):.4f}"


if __name__ == "__main__":
    run_command(main)
