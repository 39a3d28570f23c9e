"""Verdicts: one for each contrast, and error rates that a small simulation holds."""

from itertools import permutations

import numpy as np
import pytest

from benchmarks.verdicts import NOISES, measure, measure_looking
from lmzoo.statistics.contrasts import contrasts
from lmzoo.statistics.sequential import looks, more_seeds, spent_errors
from lmzoo.statistics.verdicts import verdicts

RNG = np.random.default_rng
OFFSETS = np.array([0, 0.2, -0.2, 0.001, 0.02, 0.02])


def losses(seeds=4, sd=0.002):
    return OFFSETS[:, None] + RNG(0).normal(0, sd, (len(OFFSETS), seeds))


def test_each_contrast_has_its_verdict():
    words = verdicts(contrasts(losses(), 0), margin=0.02).verdict
    assert words[:4].tolist() == ["", "worse", "better", "equivalent"]
    noisy = verdicts(contrasts(losses(sd=1.0), 0))
    assert (noisy.verdict[1:] == "undecided").all()


def test_the_seeds_needed_decide():
    """More than half of the points that are undecided are decided by that many seeds."""
    c = contrasts(losses(sd=0.3), 0)
    noisy = verdicts(c)
    assert noisy.verdict[1] == "undecided"
    more, sd = int(noisy.seeds_needed[1]), np.sqrt(c.noise[1] / 2)
    means = np.nan_to_num(c.mean)[:, None]
    decided = [
        verdicts(contrasts(means + RNG(i).normal(0, sd, (6, 4 + more)), 0)).verdict[1]
        for i in range(100)
    ]
    assert decided.count("undecided") < 40


def test_tuning_that_exceeds_the_effect_cannot_be_outweighed_by_seeds():
    result = verdicts(contrasts(losses(), 0, np.full(6, 1.0)))
    assert (result.verdict[1:] == "undecided").all()
    assert np.isnan(result.seeds_needed).all()
    assert result.needs_tuning.tolist() == [False] + [True] * 5


def test_a_point_needs_more_tuning_only_if_seeds_would_suffice_without_its_uncertainty():
    equal_means = 100.0 * np.array(sorted(set(permutations([1, 1, -1, -1]))))
    hopeless = verdicts(contrasts(equal_means, 0, np.full(6, 0.01)))
    assert np.isnan(hopeless.seeds_needed[1:]).all()
    assert not hopeless.needs_tuning.any()
    noisy = verdicts(contrasts(losses(sd=0.3), 0, np.full(6, 1e-6)))
    assert noisy.seeds_needed[1] > 0
    assert not noisy.needs_tuning[1]


def test_only_the_family_is_tested_and_counted():
    c = contrasts(losses(sd=0.1), 0)
    asked = np.array([False, True, True, False, False, False])
    result = verdicts(c, family=asked)
    assert (np.isnan(result.p) == ~asked).all()
    assert ((result.verdict == "") == ~asked).all()
    assert np.isclose(np.nanmin(result.p), min(1, 2 * np.nanmin(c.p[asked])))


def test_divergence_never_speaks_for_a_point():
    x = losses()
    x[1:, 0] = np.inf
    assert set(verdicts(contrasts(x, 0)).verdict[1:]) <= {"worse", "undecided"}
    x[2] = np.inf
    assert verdicts(contrasts(x, 0)).verdict[2] == "worse"


def test_exact_differences_are_decided_without_a_test():
    x = np.array([[1.0, 1, 1], [1.2, 1.2, 1.2], [0.8, 0.8, 0.8], [1.01, 1.01, 1.01]])
    assert verdicts(contrasts(x, 0)).verdict[1:].tolist() == ["worse", "better", "equivalent"]


def test_looks_double_and_spend_the_whole_error():
    assert looks(3, 24) == (3, 6, 12, 24)
    assert looks(5, 12) == (5, 10, 12)
    assert looks(3, 3) == (3,)
    assert np.isclose(sum(spent_errors(looks(3, 50))), 0.05)


def test_only_undecided_points_and_the_reference_get_more_seeds():
    x = losses(3)
    x[5] += RNG(1).normal(0, 0.3, 3)
    result = more_seeds(x, 0, (3, 6, 12))
    decided = result.verdict != "undecided"
    assert result.verdict[1] == "worse"
    assert result.seeds[1] == 3
    assert (result.seeds[~decided] == 6).all()
    assert result.seeds[0] == 6


def test_a_look_waits_for_all_runs_but_not_for_failed_ones():
    x = losses(3)
    x[1, 2] = np.nan
    assert (more_seeds(x, 0, (3, 6)).verdict == "").all()
    assert more_seeds(x, 0, (3, 6), ended=np.full(6, 3)).verdict[1] != ""


def test_verdicts_do_not_change_with_later_seeds():
    x = losses(12, sd=0.05)
    first, last = more_seeds(x[:, :3], 0, (3, 6, 12)), more_seeds(x, 0, (3, 6, 12))
    decided = np.isin(first.verdict, ["worse", "better", "equivalent"])
    assert decided.any()
    assert (first.verdict == last.verdict)[decided].all()


@pytest.mark.parametrize("noise", NOISES)
def test_error_rates_of_a_small_simulation(noise):
    rates = measure(noise, 3, 150)
    assert rates["errors"] <= 0.06 + 3 * 0.02
    assert rates["power"] >= 0.55
    assert rates["equivalent"] <= 0.05 + 3 * 0.018
    assert 0.92 <= rates["contrasts"] <= 0.98
    assert rates["worst rank"] >= 0.93


def test_error_rates_of_looking_again():
    rates = measure_looking("normal", 60)
    assert rates["errors"] <= 0.05 + 3 * 0.028
    assert rates["power"] >= 0.95
    assert rates["seeds 0.1"] < 12
