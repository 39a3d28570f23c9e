"""Nothing can be learnt from noise, except by looking at the answers."""

from math import log

from lmzoo import zoo
from lmzoo.experiments.iid_floor import MARGIN, IidFloor, iid_floor

SMALL = {"symbols": 4, "length": 6, "steps": 60, "batch": 50, "lr": 0.03}


def test_the_published_normaliser_goes_below_the_floor_and_rms_does_not() -> None:
    fair = iid_floor(zoo.config("DLM46", width=8), **SMALL)
    leaking = iid_floor(zoo.config("DLM46", width=8, norm="time_std"), **SMALL)
    assert fair.fault == ""
    assert fair.floor - MARGIN < fair.loss < fair.floor + 0.1
    assert leaking.loss < leaking.floor - 0.1
    assert "log V" not in leaking.fault
    assert f"{leaking.loss:.3f}" in leaking.fault
    assert leaking.loss > leaking.oracle


def test_a_counted_model_is_fitted_and_stays_above() -> None:
    found = iid_floor(zoo.config("ngram_count"), **SMALL)
    assert found.floor == log(4)
    assert log(4) <= found.loss < log(4) + 0.1


def test_the_margin_is_where_a_fault_begins() -> None:
    def fault(loss: float) -> str:
        return IidFloor(loss=loss, floor=1.0, oracle=0.5, steps=1).fault

    assert fault(1.0 - MARGIN) == ""
    assert fault(1.0 - MARGIN - 1e-9) != ""


def test_the_same_seed_gives_the_same_figure() -> None:
    config = zoo.config("rnn_lm", width=4)
    small = {**SMALL, "steps": 3}
    assert iid_floor(config, **small) == iid_floor(config, **small)
    assert iid_floor(config, **small) != iid_floor(config, **small, seed=1)
