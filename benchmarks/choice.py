"""How well a sweep chooses a setting, and what it states of its error, on responses that are known.

    python benchmarks/choice.py [--samples 10] [--studies 8]

Search by `benchmarks/search.py` has recorded losses at five rates only. Here eight points have a
known response to the learning rate, over one decade, and the noise of a real training: over seeds,
the losses of DLM46 on captions at rates 1.2, 1.4 and 1.7 times apart have correlations of .72, .45
and .30 (7 seeds at 10 rates). So close settings with one seed share their luck.

    regret   loss of the chosen rate less the least of the response, in nats; mean
    rms      its root mean square, next to that of the stated `tuning_sd`
    runs     epochs of tuning a point, in full runs

The planner is that of a sweep, with its defaults but for the number of settings.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import optuna
import search
import typer
from numpy.typing import NDArray

from lmzoo.base.command_line import run_command

Array = NDArray[np.float64]
POINTS = 8
EPOCHS = 10
LOW = 0.01
HIGH = 0.1
PLACES = np.linspace(-1.3, 1.3, 261)
"""x of the noise: −1 and 1 are the bounds of the range."""
SHARED = 0.3
"""Correlation of the losses of one seed at any two rates."""
NEAR = 0.55
"""Further correlation of close rates, which falls with their distance."""
REACH = 0.2
SPREADS = (0.01, 0.02)


def _centred(p: int, x: Array) -> Array:
    return x - 0.1 * (p - 3.5)


# Of most responses the start design of four settings contains the best one; of "far" it does not.
# In "one still falls" the first point fails with some seeds; the row is that of the others.
RESPONSES: dict[str, Callable[[int, Array], Array]] = {
    "flat": lambda p, x: 0.03 * _centred(p, x) ** 2,
    "smooth": lambda p, x: 0.12 * (x - 0.15 + 0.08 * (p - 3.5)) ** 2,
    "steep": lambda p, x: 0.4 * (x - 0.2 + 0.05 * (p - 3.5)) ** 2,
    "a cliff": lambda p, x: 0.06 * (_centred(p, x) + 0.2) ** 2 + 1.5 * (x > 0.65),
    "steeper above": lambda p, x: (0.08 + 0.32 * (_centred(p, x) > 0)) * _centred(p, x) ** 2,
    "far": lambda p, x: 0.12 * (x - 0.8 + 0.05 * (p - 3.5)) ** 2,
    "far, a cliff": lambda p, x: 0.12 * (x - 0.9) ** 2 + 1.5 * (x > 0.85),
    "noise that grows": lambda p, x: 0.12 * (x - 0.15 + 0.08 * (p - 3.5)) ** 2,
    "one still falls": lambda p, x: 0.12 * (x - 0.15 + 0.08 * (p - 3.5)) ** 2,
}


def place(rate: float) -> float:
    """Return x of a rate."""
    return float(np.log(rate / LOW) / np.log(HIGH / LOW) * 2 - 1)


class Trainings:
    """Trainings of one point, as `search.sweep` asks for them."""

    curves = np.zeros((5, 1, EPOCHS))
    rates = LOW * (HIGH / LOW) ** ((np.arange(5) + 0.5) / 5)

    def __init__(self, name: str, point: int, spread: float, rng: np.random.Generator) -> None:
        self.name = name
        self.point = point
        self.spread = spread
        self.rng = rng
        self.epochs = 0.0
        self.fails = name == "one still falls" and point == 0
        self.noise: dict[int, Array] = {}

    def curve(self, rate: float, seed: int) -> Array:
        """Return the loss after each epoch."""
        x = place(rate)
        if seed not in self.noise:
            self.noise[seed] = ROOT @ self.rng.standard_normal(len(PLACES))
        nearest = int(np.abs(PLACES - x).argmin())
        spread = self.spread
        if self.name == "noise that grows":
            spread *= 1 + 2 * max(0.0, x)
        if self.fails:
            spread *= 20
        last = (
            2 + RESPONSES[self.name](self.point, np.array(x)) + spread * self.noise[seed][nearest]
        )
        epoch = np.arange(1, EPOCHS + 1)
        # Low rates learn slowly.
        slow = 0.6 + 0.5 * max(0.0, -x)
        if self.fails:
            slow = 20 * slow * self.rng.random()
        return last + slow * (1 / epoch - 1 / EPOCHS)


def _noise_root() -> Array:
    distance = PLACES[:, None] - PLACES
    near = NEAR * np.exp(-0.5 * (distance / REACH) ** 2)
    of_places = SHARED + near + (1 - SHARED - NEAR) * np.eye(len(PLACES))
    return np.asarray(np.linalg.cholesky(of_places), np.float64)


ROOT = _noise_root()


def main(
    samples: Annotated[list[int] | None, typer.Option(help="Settings of a point.")] = None,
    studies: Annotated[int, typer.Option(min=1, help="Studies of each row.")] = 8,
    only: Annotated[str, typer.Option(help="Words of the responses; all by default.")] = "",
    out: Annotated[Path, typer.Option(help="The table.")] = Path("runs/bench/choice.md"),
) -> None:
    """Simulate, print each row as it is done, and write the table."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lines = [
        "| response | sd of a seed | samples | regret | rms | stated | runs |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    typer.echo("\n".join(lines))
    for name in RESPONSES:
        for spread in SPREADS:
            for count in samples or (5, 10):
                if only in name:
                    lines.append(row(name, spread, count, studies))
                    typer.echo(lines[-1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")


def row(name: str, spread: float, samples: int, studies: int) -> str:
    """Return a row of the table."""
    response = RESPONSES[name]
    fine = np.linspace(-1, 1, 4001)
    least = [response(point, fine).min() for point in range(POINTS)]
    regrets = list[Array]()
    stated = list[Array]()
    runs = list[float]()
    key = (POINTS, EPOCHS, float(Trainings.rates[0]), float(Trainings.rates[-1]))
    study, resolved = search.simulated_study(*key)
    search._STUDIES[key] = dataclasses.replace(study, samples=samples), resolved
    for number in range(studies):
        rng = np.random.default_rng([number, 7])
        own = [Trainings(name, point, spread, rng) for point in range(POINTS)]
        got = search.sweep(own, number)  # pyright: ignore[reportArgumentType]
        chosen = [response(p, np.array(place(rate))) for p, rate in enumerate(got.rates)]
        # A point that fails must not spoil the others.
        measured = [not training.fails for training in own]
        regrets.append((np.array(chosen) - least)[measured])
        stated.append(got.tuning_sd[measured])
        runs.append(float(np.mean([t.epochs / EPOCHS for t in own])))
    rms = [f"{np.sqrt(np.square(values).mean()):.4f}" for values in (regrets, stated)]
    cells = (name, f"{spread:g}", samples, f"{np.mean(regrets):.4f}", *rms, f"{np.mean(runs):.1f}")
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    run_command(main)
