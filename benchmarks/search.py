"""Ways of choosing a setting, compared by simulated studies drawn from recorded trainings.

    python benchmarks/search.py [FILE.ndjson.gz ...]

A line of a file is one training: point, rate, seed, validation loss after every epoch, test loss.
`git show 8109d34:benchmarks/record_curves.py` records one: a sweep without search at each rate.
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

A rule gets the points of a simulated study and the range of the learning rate. It trains any rate
with any of the point's seeds, to the end or not, and returns a rate for each point.
"""

import dataclasses
import functools
import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import numpy as np
import optuna
import typer
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from simulated_cluster import MemoryStore

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.statistics.compared import compared
from lmzoo.lab.study import point_planner
from lmzoo.lab.study.designs import start_design
from lmzoo.lab.study.planned_run import Answer
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import Point, Setting, Study
from lmzoo.trainables.resolve import corpus_config, resolve
from lmzoo.trainables.rows import RowPoint

Array = NDArray[np.float64]
STEP = 0.06
"""Nats that each recorded step beyond the recorded rates adds."""
FIELD = "recipe.lr"
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


@dataclass
class Trainings:
    """The recorded trainings of one point, at any rate: monotone interpolation in log rate.

    Beyond the recorded rates each step adds `STEP`.
    """

    rates: Array
    curves: Array
    """Lowest validation loss up to each epoch, (J, S, E)."""
    order: NDArray[np.int64]
    """The seeds in the order in which they are used, (S,)."""
    epochs: float = 0.0
    """Epochs trained."""
    seeds: list[int] = field(default_factory=list)
    """The requested seeds."""

    def __post_init__(self) -> None:
        self._at = PchipInterpolator(np.log(self.rates), self.curves, axis=0)

    def curve(self, rate: float, seed: int) -> Array:
        """Return the curve of a training."""
        if seed not in self.seeds:
            self.seeds.append(seed)
        used = self.order[self.seeds.index(seed) % len(self.order)]
        return self.at(rate, self._at)[used]

    def at(self, rate: float, interpolated: PchipInterpolator) -> Array:
        """Return what an interpolator of the recorded rates' logarithms has at a rate."""
        inside = np.clip(rate, self.rates[0], self.rates[-1])
        step = np.log(self.rates[-1] / self.rates[0]) / (len(self.rates) - 1)
        return np.asarray(interpolated(np.log(inside))) + STEP * abs(np.log(rate / inside)) / step


class Outcome(NamedTuple):
    """What a rule did with P points."""

    rates: Array
    """The chosen rate, (P,)."""
    tuning_sd: Array
    """What the rule states for its choice, (P,); 0 if it states none."""


Rule = Callable[[Sequence[Trainings], int], Outcome]


def sweep(points: Sequence[Trainings], n: int, **changes: Any) -> Outcome:
    """Let the planner of a sweep decide; study n has the seed n, and `changes` of the defaults."""
    epochs, rates = points[0].curves.shape[-1], points[0].rates
    study, resolved = simulated_study(len(points), epochs, float(rates[0]), float(rates[-1]))
    study = dataclasses.replace(study, seed=n, **changes)
    planner = Planner(study, resolved, MemoryStore())  # pyright: ignore[reportArgumentType]
    by_label = {p.point.label: own for p, own in zip(planner.points, points, strict=True)}
    while not planner.done:
        for run in planner.new_ready():
            planner.start(run)
            if run.stage == "confirm":
                planner.end(run.id, "finished", test_loss=2.0)
                continue
            own = by_label[run.label]
            curve = own.curve(run.config["recipe"]["lr"], run.config["seed"])
            answer = Answer.CONTINUE
            while answer is Answer.CONTINUE and run.last_epoch < epochs:
                epoch = run.last_epoch + 1
                own.epochs += 1
                answer = planner.report(
                    run.id, {"epoch": epoch, "valid_token": float(curve[epoch - 1])}
                )
            if run.last_epoch == epochs:
                planner.end(run.id, "finished")
            elif answer is Answer.WAIT:
                planner.requeue(run.id)
            else:
                planner.end(run.id, "pruned")
    chosen = [(point.best_setting or {})[FIELD] for point in planner.points]
    return Outcome(np.array(chosen), np.array([point.tuning_sd for point in planner.points]))


def optuna_first(points: Sequence[Trainings], n: int) -> Outcome:
    """Let Optuna propose four of six settings, after two of the start design."""

    def two(*arguments: Any) -> list[Setting]:
        return start_design(*arguments)[:2]

    with patch.object(point_planner, "start_design", two):
        return sweep(points, n, samples=6)


def grid(points: Sequence[Trainings], n: int) -> Outcome:
    """Take the minimum of the recorded rates, one seed each."""
    best = [own.rates[int(own.curves[:, own.order[0], -1].argmin())] for own in points]
    for own in points:
        own.epochs += own.curves.shape[0] * own.curves.shape[-1]
    return Outcome(np.array(best), np.zeros(len(points)))


RULES: dict[str, Rule] = {
    "a sweep": sweep,
    "grid of five, minimum": grid,
    "six settings, asha": functools.partial(sweep, samples=6, pruner="asha"),
    "six settings, four by Optuna": optuna_first,
}

_STUDIES: dict[Any, tuple[Study, list[RowPoint]]] = {}


def simulated_study(count: int, epochs: int, low: float, high: float) -> tuple[Study, list[Any]]:
    """Return a study whose range has the recorded rates as the middles of its cells."""
    key = (count, epochs, low, high)
    if key not in _STUDIES:
        bounds = _bounds(np.array([low, np.sqrt(low * high), high]), cells=5)
        points = (Point(f"p{i}", "DLM46", {"dropout_input": 0.001 * i}) for i in range(count))
        text = Path(tempfile.mkdtemp(), "words.txt")  # no run reads it
        text.write_text("".join(f"{'a b ' * (3 + i % 5)}c\n" for i in range(60)))
        study = Study(
            name="search", question="?", points=tuple(points), corpus=f"text:{text}",
            epochs=epochs, search={FIELD: FloatRange(*bounds, log=True)}, seeds=1,
            fields={FIELD: float(f"{np.sqrt(low * high):.4g}"), "corpus.length": 10},
        )  # fmt: skip
        fields = corpus_config(study, study.fields)
        corpus = open_corpus(fields)
        resolved = [p for p in resolve(study, corpus, fields) if not p.baseline]
        _STUDIES[key] = study, resolved
    return _STUDIES[key]


def _bounds(rates: Array, cells: int = 0) -> tuple[float, float]:
    """Return the range of which the rates are the middles of equal cells."""
    half = (rates[-1] / rates[0]) ** (0.5 / ((cells or len(rates)) - 1))
    return float(rates[0] / half), float(rates[-1] * half)


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Recorded trainings.")] = None,
    studies: Annotated[int, typer.Option(min=2, help="Studies of each case and rule.")] = 150,
    first: Annotated[int, typer.Option(help="Seed of the first study.")] = 0,
    out: Annotated[Path, typer.Option(help="The table.")] = Path("runs/bench/search.md"),
    only: Annotated[str, typer.Option(help="Words of the cases; all by default.")] = "",
    rules: Annotated[str, typer.Option(help="Words of the rules; all by default.")] = "",
) -> None:
    """Simulate, print each row as it is done, and write the table."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    paths = files or sorted(CURVES.glob("*.ndjson.gz"))
    loaded = {path.name.split(".")[0].rsplit("_", 1)[-1]: load(path) for path in paths}
    head = "case | rule | studies | regret | 95 % | changed point | rms | stated | runs | worse"
    text = f"| {head} |\n|---|---|{'---:|' * 8}\n"
    typer.echo(text, nl=False)
    for case, (parts, changed) in cases(loaded).items():
        for name, rule in RULES.items():
            if only in case and rules in name:
                cells = measure(parts, changed, rule, range(first, first + studies))
                line = f"| {case} | {name} | {studies} | {' | '.join(cells)} |\n"
                typer.echo(line, nl=False)
                text += line
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)


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
