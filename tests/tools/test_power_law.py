"""Power laws: exact without noise, and intervals that hold the truth as often as they say."""

from collections import Counter

import numpy as np
import pytest
from power_law import fit_power_laws, log_ratio

SIZES = np.array([1e3, 4e3, 1.6e4, 6.4e4])


def curve(exponent: float, constant: float, noise: np.ndarray) -> np.ndarray:
    """Return the losses of four seeds at each size, (sizes, seeds)."""
    logs = constant - exponent * np.log(SIZES)
    logs_of_seeds = logs[:, None] + noise
    return np.exp(logs_of_seeds)


def test_a_power_law_without_noise_is_found_exactly():
    rng = np.random.default_rng(0)
    noise = 1e-9 * rng.standard_normal((len(SIZES), 4))
    noisy = curve(0.1, 2.0, noise)
    (law,) = fit_power_laws([SIZES], [noisy], [np.zeros(4)])
    exponent, *_ = law.exponent(1e4)
    loss, *_ = law.band(1e4)
    assert exponent == pytest.approx(0.1, abs=1e-8)
    assert loss == pytest.approx(np.exp(2.0) * 1e4**-0.1)


def holds(interval, truth: float) -> bool:
    _, low, high = interval
    return low < truth < high


def test_intervals_hold_the_truth_in_95_percent_of_studies():
    rng = np.random.default_rng(1)
    held = Counter()
    studies = 150
    deviation = 0.02 * np.sqrt(0.5)
    loss_at_2000 = np.exp(2.0) * 2e3**-0.08
    log_ratio_at_2000 = (2.0 - 2.2) + (0.11 - 0.08) * np.log(2e3)
    for _ in range(studies):
        # A seed has a part of its noise in common at all sizes and in both curves.
        common = deviation * rng.standard_normal(4)
        first_own, second_own = deviation * rng.standard_normal((2, len(SIZES), 4))
        first_losses = curve(0.08, 2.0, first_own + common)
        second_losses = curve(0.11, 2.2, second_own + common)
        losses = [first_losses, second_losses]
        first, second = fit_power_laws([SIZES, SIZES], losses, [np.zeros(4), np.zeros(4)])
        held["exponent"] += holds(first.exponent(5e3), 0.08)
        held["band"] += holds(first.band(2e3), loss_at_2000)
        held["ratio"] += holds(log_ratio(first, second, 2e3), log_ratio_at_2000)
    assert len(held) == 3
    for name, count in held.items():
        share = count / studies
        # Birge's ratio only widens, so the intervals may hold the truth more often.
        assert 0.91 < share <= 0.995, (name, share)
