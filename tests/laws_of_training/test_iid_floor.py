"""Only a leaking model scores below the entropy of independent tokens."""

import math

from lmzoo import zoo
from lmzoo.laws_of_training.iid_floor import MARGIN, IidFloor, iid_floor

SMALL = {"symbols": 4, "length": 6, "steps": 60, "batch": 50, "lr": 0.03}


def test_the_published_normaliser_is_below_the_floor_and_rms_is_not():
    config = zoo.config("DLM46", width=8)
    valid = iid_floor(config, **SMALL)
    config = zoo.config("DLM46", width=8, norm="time_std")
    leaking = iid_floor(config, **SMALL)
    assert valid.fault == ""
    gap = valid.loss - valid.floor
    assert -MARGIN < gap < 0.1
    assert leaking.loss < leaking.floor - 0.1
    assert "log V" not in leaking.fault
    assert f"{leaking.loss:.3f}" in leaking.fault
    assert leaking.loss > leaking.oracle


def test_a_closed_form_model_is_fitted_and_above_the_floor():
    config = zoo.config("ngram_count")
    result = iid_floor(config, **SMALL)
    entropy = math.log(4)
    assert result.floor == entropy
    assert entropy <= result.loss < entropy + 0.1


def test_a_loss_below_the_margin_is_a_fault():
    def fault(loss):
        result = IidFloor(loss=loss, floor=1.0, oracle=0.5, steps=1)
        return result.fault

    assert fault(1.0 - MARGIN) == ""
    assert fault(1.0 - MARGIN - 1e-9) != ""


def test_the_result_depends_on_the_seed_only():
    config = zoo.config("rnn_lm", width=4)
    small = SMALL | {"steps": 3}
    first = iid_floor(config, **small)
    assert iid_floor(config, **small) == first
    assert iid_floor(config, **small, seed=1) != first
