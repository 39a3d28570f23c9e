"""ASHA by generations equals the published algorithm if each generation has one run."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ray.tune.schedulers.async_hyperband import _Bracket

from lmzoo.sweep.asha import passes_rung, rungs

LOSSES = st.lists(st.floats(0, 10), min_size=1, max_size=12)


def test_rungs_are_geometric_and_below_the_budget():
    assert rungs(2, 3, 20) == [2, 6, 18]
    assert rungs(2, 3, 18) == [2, 6]
    assert rungs(4, 2, 3) == []


@given(LOSSES, st.integers(2, 4))
def test_one_run_per_generation_equals_ray_tunes_asha(losses: list[float], reduction: int):
    bracket = _Bracket(min_t=1, max_t=2, reduction_factor=reduction, s=0)
    for i, loss in enumerate(losses):
        theirs = bracket.on_result(SimpleNamespace(trial_id=str(i)), 1, -loss)
        ours = passes_rung(loss, losses[:i], reduction)
        cutoff = np.percentile(losses[:i], 100 / reduction) if i else np.inf
        if not np.isclose(loss, cutoff, rtol=1e-9):  # rounding decides a tie
            assert ours == (theirs == "CONTINUE")


@given(LOSSES, st.randoms())
def test_the_order_of_earlier_runs_does_not_matter(losses: list[float], shuffler):
    shuffled = losses[1:]
    shuffler.shuffle(shuffled)
    assert passes_rung(losses[0], losses[1:], 3) == passes_rung(losses[0], shuffled, 3)


def test_the_best_run_passes_and_the_worst_of_many_does_not():
    recorded = [1.0, 2.0, 3.0, 4.0]
    assert passes_rung(0.5, recorded, 3)
    assert not passes_rung(5.0, recorded, 3)
