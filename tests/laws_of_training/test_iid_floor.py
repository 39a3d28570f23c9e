"""Only a leaking model scores below the entropy of independent tokens."""

import math

from lmzoo import zoo
from lmzoo.laws_of_training.iid_floor import MARGIN, IidFloor, iid_floor

SMALL = {"symbols": 4, "length": 6, "steps": 60, "batch": 50, "lr": 0.03}


def test_the_published_normaliser_is_below_the_floor_and_rms_is_not():
    valid = iid_floor(zoo.config("DLM46", width=8), **SMALL)
    leaking = iid_floor(zoo.config("DLM46", width=8, norm="time_std"), **SMALL)
    assert valid.fault == ""
    assert valid.floor - MARGIN < valid.loss < valid.floor + 0.1
    assert leaking.loss < leaking.floor - 0.1
    assert "log V" not in leaking.fault
    assert f"{leaking.loss:.3f}" in leaking.fault
    assert leaking.loss > leaking.oracle


def test_a_closed_form_model_is_fitted_and_above_the_floor():
    result = iid_floor(zoo.config("ngram_count"), **SMALL)
    assert result.floor == math.log(4)
    assert math.log(4) <= result.loss < math.log(4) + 0.1


def test_a_loss_below_the_margin_is_a_fault():
    def fault(loss: float) -> str:
        return IidFloor(loss=loss, floor=1.0, oracle=0.5, steps=1).fault

    assert fault(1.0 - MARGIN) == ""
    assert fault(1.0 - MARGIN - 1e-9) != ""


def test_the_result_depends_on_the_seed_only():
    config = zoo.config("rnn_lm", width=4)
    small = {**SMALL, "steps": 3}
    assert iid_floor(config, **small) == iid_floor(config, **small)
    assert iid_floor(config, **small) != iid_floor(config, **small, seed=1)
