"""Ways of choosing a setting, applied to recorded trainings: the planner of a sweep and its rivals.

A rule gets the points of a simulated study and the range of the learning rate. It trains any rate
with any of the point's seeds, to the end or not, and returns a rate for each point.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch
from scipy.interpolate import PchipInterpolator
from simulated_cluster import MemoryStore

from lmzoo.data.corpus import open_corpus
from lmzoo.search_space import FloatRange
from lmzoo.study.planned_run import Answer
from lmzoo.study.planner import Planner
from lmzoo.study.study import Point, Study
from lmzoo.trainables.resolve import corpus_config, resolve
from lmzoo.trainables.rows import RowPoint

Array = NDArray[np.float64]
STEP = 0.06
"""Nats that each recorded step beyond the recorded rates adds."""
TOGETHER = 2
"""Trials of a point that Tune trains at the same time."""
FIELD = "recipe.lr"


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


def sweep(points: Sequence[Trainings], n: int) -> Outcome:
    """Let the planner of a sweep decide, with its defaults; study n has the seed n."""
    epochs, rates = points[0].curves.shape[-1], points[0].rates
    study, resolved = _study(len(points), epochs, float(rates[0]), float(rates[-1]))
    planner = Planner(dataclasses.replace(study, seed=n), resolved, MemoryStore())  # pyright: ignore[reportArgumentType]
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


def grid(points: Sequence[Trainings], n: int) -> Outcome:
    """Take the minimum of the recorded rates, one seed each."""
    best = [own.rates[int(own.curves[:, own.order[0], -1].argmin())] for own in points]
    for own in points:
        own.epochs += own.curves.shape[0] * own.curves.shape[-1]
    return Outcome(np.array(best), np.zeros(len(points)))


def tune(points: Sequence[Trainings], n: int) -> Outcome:
    """Let Ray Tune decide: five settings of `OptunaSearch`, stopped by `ASHAScheduler`.

    Both have their defaults. The lowest last loss of all trials wins.
    """
    chosen = []
    for p, own in enumerate(points):
        search = OptunaSearch(
            {"lr": FloatDistribution(*_bounds(own.rates), log=True)},
            metric="loss", mode="min", seed=1000 * n + p,
        )  # fmt: skip
        scheduler: Any = ASHAScheduler(metric="loss", mode="min", max_t=own.curves.shape[-1])
        chosen.append(_tune_point(own, search, scheduler))
    return Outcome(np.array(chosen), np.zeros(len(points)))


RULES: dict[str, Rule] = {
    "a sweep": sweep,
    "grid of five, minimum": grid,
    "Tune: TPE and ASHA, 5": tune,
}

_STUDIES: dict[Any, tuple[Study, list[RowPoint]]] = {}


def _study(count: int, epochs: int, low: float, high: float) -> tuple[Study, list[Any]]:
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


def _tune_point(own: Trainings, search: Any, scheduler: Any) -> float:
    """Train the trials of a point, `TOGETHER` at a time, epoch by epoch in turn."""
    rates, last, active = dict[str, float](), dict[str, float](), dict[str, int]()
    total = own.curves.shape[-1]
    while active or len(rates) < len(own.rates):
        while len(active) < TOGETHER and len(rates) < len(own.rates):
            name = str(len(rates))
            rates[name] = search.suggest(name)["lr"]
            active[name] = 0
            scheduler.on_trial_add(None, SimpleNamespace(trial_id=name))
        for name in list(active):
            active[name] += 1
            own.epochs += 1
            last[name] = float(own.curve(rates[name], 0)[active[name] - 1])
            result = {"loss": last[name], "training_iteration": active[name]}
            stop = scheduler.on_trial_result(None, SimpleNamespace(trial_id=name), result)
            search.on_trial_result(name, result)
            if active[name] == total or stop == TrialScheduler.STOP:
                search.on_trial_complete(name, result)
                del active[name]
    return rates[min(last, key=last.__getitem__)]
