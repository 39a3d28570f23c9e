"""Numbers of the fits that share information among points, which no short formula gives.

They change only with the method. A failing test prints the correct line of `pins.json`.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmzoo.lab.statistics import responses
from lmzoo.lab.statistics.compared import compared, looks, spend
from lmzoo.lab.statistics.contrasts import contrasts, point_intervals, rank_intervals
from lmzoo.lab.statistics.noise import posterior, seed_noise
from lmzoo.lab.statistics.power import planned_seeds

PINS = Path(__file__).with_name("pins.json")
RNG = np.random.default_rng


def study() -> np.ndarray:
    """Return losses (12, 6): one point is noisy, one exact; some runs are missing or diverged."""
    x = 0.01 * RNG(0).normal(size=(12, 6)) + 0.05 * RNG(1).normal(size=6)
    x += np.linspace(0, 0.05, 12)[:, None]
    x[2] += 0.2 * RNG(2).normal(size=6)
    x[3] = 0.02
    x[4, 4:] = np.nan
    x[5, 1] = np.nan
    x[6, 0] = np.inf
    x[7, 1:] = np.nan
    return x


def without_infinity() -> np.ndarray:
    return np.where(np.isfinite(study()), study(), np.nan)


def long_reference() -> np.ndarray:
    """Return losses whose reference is noisy and has three times as many seeds."""
    x = 0.01 * RNG(3).normal(size=(8, 12)) + 0.1 * RNG(4).normal(size=12)
    x[0] += 0.2 * RNG(5).normal(size=12)
    x[1:, 4:] = np.nan
    return x


def number_of_outliers(freedom: float) -> int:
    """Return how many variances, up to 60 times the usual one, are not shared."""
    usual = RNG(16).chisquare(freedom, 20) / freedom
    variances = np.append(usual, np.geomspace(2, 60, 80))
    _, _, outlier = posterior(variances, np.full(100, freedom), np.arange(100) < 20)
    return outlier.sum()


def half_quiet() -> np.ndarray:
    """Return the expected variances of points of which nearly half vary hardly: the prior ends."""
    variances = np.array([2e-3] * 5 + [1, 0.8, 1.2, 1.5, 1.1, 0.9])
    values, weight, _ = posterior(variances, np.full(11, 4.0))
    return weight @ values


H = responses.PRIOR + np.array([0.3, -0.2, 0.1, 0.2, -1.0])


def response_fit(kind: str, *, drawn: bool) -> list[Any]:
    """Return the fit of parabolas and of what its kind adds, for given hyperparameters.

    The optimiser and the draws depend in their last digits on the machine; the draws are many.
    """
    fields = 1
    if kind == "fields":
        fields = 2
    x = RNG(6).uniform(-1, 1, (9, fields))
    best = 0.3 * RNG(7).normal(size=(7, 1, fields))
    y = 2 + 0.3 * ((x - best) ** 2).sum(-1) + 0.02 * RNG(8).normal(size=(7, 9))
    y[3] = 2 + 0.8 * (x[:, 0] + 0.8) ** 2
    options = {}
    bounds = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "DRAWS", 4000)
        if kind == "cliff":
            y[:2, x[:, 0] > 0.3] += 3
            y[4, :2] = np.inf
            y[5, 3:5] = np.nan
        elif kind == "early":
            options["early"] = y + 0.5 + 0.1 * x[:, 0]
            y[:, 6:] = np.nan
            y[0, 5:] = np.nan
        elif kind == "repeats":
            x = np.concatenate([[x] * 7, x[RNG(9).integers(0, 9, (7, 3))]], 1)
            y = np.concatenate([y, 2.05 + 0.02 * RNG(10).normal(size=(7, 3))], 1)
            options = {"seeds": np.array([[0] * 9 + [1, 1, 2]] * 7), "shared": 7}
        elif kind == "many":
            patch.setattr(responses, "MOST", 5)
            patch.setattr(responses, "SETTINGS", 6)

        def minimize(bound, h, read, **_):
            bounds.extend([bound(h, *read), bound(H, *read)])
            return SimpleNamespace(x=H)

        patch.setattr(responses.optimize, "minimize", minimize)
        fit = responses.fit_responses(y, x, **options)
    if drawn:
        return [fit.regret, fit.tuning_sd]
    chosen = np.column_stack([fit.order, fit.challenger])  # runs of one setting are in any order
    return [bounds, fit.mean, np.take_along_axis(fit.mean, chosen, 1)]


SIX = spend(looks(3, 6))
SD = np.linspace(0, 0.02, 12)
FITS = {
    "outliers": lambda: [number_of_outliers(freedom) for freedom in (1.0, 2.0, 3.0, 5.0)],
    "half quiet": half_quiet,
    "expected noise": lambda: seed_noise(without_infinity()).expected(),
    "contrasts": lambda: contrasts(study(), 0, paired=True)[:7],
    "contrasts with tuning": lambda: contrasts(study(), 1, SD, paired=True).half(),
    "unpaired contrasts": lambda: contrasts(study(), 0, SD)[:7],
    "Welch's contrasts": lambda: contrasts(study()[4:7], 1, 0.01, paired=False)[:7],
    "long reference": lambda: contrasts(long_reference(), 0).half(),
    "intervals": lambda: point_intervals(study()),
    "ranks": lambda: rank_intervals(study(), SD),
    "plan": lambda: planned_seeds(study(), 0, 0.02, tuning_sd=SD / 4),
    "plan of few": lambda: planned_seeds(study()[:2], 0, 0.02, paired=False, count=3),
    "verdicts": lambda: compared(study(), 0, looks=SIX, tuning_sd=SD / 4)[1:16],
} | {
    f"{name}: {kind}": lambda kind=kind, drawn=name != "responses": response_fit(kind, drawn=drawn)
    for name in ("responses", "choices")
    for kind in ("plain", "fields", "cliff", "early", "repeats", "many")
}


def numbers(result: Any) -> list[float]:
    if isinstance(result, list | tuple):
        return [number for part in result for number in numbers(part)]
    return [float(f"{number:.6g}") for number in np.ravel(result)]


@pytest.mark.parametrize("name", FITS)
def test_fits_match_the_pins(name):
    found = numbers(FITS[name]())
    pins = json.loads(PINS.read_text())
    line = f"  {json.dumps(name)}: {json.dumps(found)},"
    rel = 1e-4
    abs = 1e-9
    if name.startswith("choices"):  # drawn settings: scipy 1.18 and numpy 2.5 move one by 0.11
        rel = 0.2
        abs = 2e-4
    assert found == pytest.approx(pins.get(name), rel=rel, abs=abs, nan_ok=True), line
