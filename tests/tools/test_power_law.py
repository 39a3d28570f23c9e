"""Power laws: exact without noise, and intervals that hold the truth as often as they say."""

import numpy as np
import pytest
from power_law import fit_power_laws, log_ratio

SIZES = np.array([1e3, 4e3, 1.6e4, 6.4e4])


def curve(exponent: float, constant: float, noise: np.ndarray) -> np.ndarray:
    """Return the losses of four seeds at each size, (sizes, seeds)."""
    logs = constant - exponent * np.log(SIZES)
    return np.exp(logs[:, None] + noise)


def test_a_power_law_without_noise_is_found_exactly():
    rng = np.random.default_rng(0)
    noise = 1e-9 * rng.standard_normal((len(SIZES), 4))
    noisy = curve(0.1, 2.0, noise)
    [law] = fit_power_laws([SIZES], [noisy], [np.zeros(4)])
    assert law.exponent(1e4)[0] == pytest.approx(0.1, abs=1e-8)
    assert law.band(1e4)[0] == pytest.approx(np.exp(2.0) * 1e4**-0.1)


def test_intervals_hold_the_truth_in_95_percent_of_studies():
    rng = np.random.default_rng(1)
    held = {"exponent": 0, "band": 0, "ratio": 0}
    studies = 150
    deviation = 0.02 * np.sqrt(0.5)
    for _ in range(studies):
        # A seed has a part of its noise in common at all sizes and in both curves.
        common = deviation * rng.standard_normal(4)
        noise = deviation * rng.standard_normal((2, len(SIZES), 4)) + common
        losses = [curve(0.08, 2.0, noise[0]), curve(0.11, 2.2, noise[1])]
        first, second = fit_power_laws([SIZES] * 2, losses, [np.zeros(4)] * 2)
        _, low, high = first.exponent(5e3)
        held["exponent"] += low < 0.08 < high
        _, low, high = first.band(2e3)
        held["band"] += low < np.exp(2.0) * 2e3**-0.08 < high
        _, low, high = log_ratio(first, second, 2e3)
        held["ratio"] += low < -0.2 + 0.03 * np.log(2e3) < high
    for name, count in held.items():
        share = count / studies
        # Birge's ratio only widens, so the intervals may hold the truth more often.
        assert 0.91 < share <= 0.995, (name, share)
