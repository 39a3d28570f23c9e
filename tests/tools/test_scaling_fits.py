"""Loss against size: curves from labels, comparison at shared sizes, changes of order."""

import numpy as np
import pytest
from scaling_fits import scaling_curves

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study


@pytest.fixture
def scaled(toy):
    """Two curves that cross: `gru` is better at small sizes, `lstm` at large ones."""
    rng = np.random.default_rng(0)
    for name, exponent, constant, states in (("gru", 0.05, 2.0, 1), ("lstm", 0.15, 3.0, 2)):
        for width in (8, 16, 32, 64):
            size = 100 * width**2
            log_loss = constant - exponent * np.log(size)
            noise = 0.003 * rng.standard_normal(4)
            losses = np.exp(log_loss + noise)
            facts = {"parameters": size, "state_size": width * states}
            toy.add_point(f"{name} E={width}", losses.tolist(), **facts)
    toy.study_json["reference"] = "gru E=8"
    toy.write()
    return toy


def test_curves_have_the_exponents_of_their_losses_and_may_change_their_order(scaled):
    study = load_study(scaled.path)
    frame, changes, *_ = scaling_curves(study, by="parameters")
    assert frame["curve"].to_list() == ["cut gru", "cut lstm"]
    assert frame["reference"].to_list() == [True, False]
    assert frame["points"].to_list() == [4, 4]
    assert frame["exponent"].to_list() == pytest.approx([0.05, 0.15], abs=0.01)
    # The curves cross.
    assert changes == [("cut gru", "cut lstm")]
    # Intervals of the ratio to the reference: above one at small sizes, below at large ones.
    _, lstm = frame.to_dicts()
    assert lstm["ratio_low_size_low"] > 1 > lstm["ratio_high_size_high"]


def test_a_study_without_curves_is_an_error(toy):
    toy.add_point("full", [2.0, 2.1])
    study = load_study(toy.path)
    with pytest.raises(UserError, match="has no curve"):
        scaling_curves(study, by="parameters")
    with pytest.raises(UserError, match="known: parameters, state, compute"):
        scaling_curves(study, by="height")
