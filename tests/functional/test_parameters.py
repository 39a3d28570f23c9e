"""Initial weights: their standard deviations, and a stream for each module."""

import pytest
import torch
from torch import nn

from lmzoo.base.errors import UserError
from lmzoo.functional.parameters import INITIALISERS, initialise, initialiser
from tests.tiny import tiny

OUT = 400
IN = 100
VARIANCES = {"xavier": 2 / (IN + OUT), "kaiming": 2 / IN}


@pytest.mark.parametrize("name", [name for name in INITIALISERS if name != "default"])
def test_the_standard_deviation_matches_the_name(name):
    """40,000 draws give the standard deviation with a relative error below 0.01."""
    kind, _, size = name.partition("_")
    if kind == "uniform":  # U(−a, a) has the standard deviation a / √3
        scale = 3**0.5
    else:
        scale = 1
    if kind in VARIANCES:
        std = VARIANCES[kind] ** 0.5
    else:
        std = float(size) / scale
    torch.manual_seed(0)
    weight = torch.full((OUT, IN), torch.nan)
    initialiser(name)(weight)
    assert weight.std().item() == pytest.approx(std, rel=0.02)
    assert abs(weight.mean().item()) < 0.02 * std
    if "uniform" in name:  # a normal of the same standard deviation exceeds this bound
        assert weight.abs().max().item() <= std * 3**0.5 * 1.0001


def test_redrawing_changes_matrices_clears_biases_and_keeps_norms():
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    initialise(module, 0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    initialise(module, 0, "default")
    assert all(before[name].equal(value) for name, value in module.state_dict().items())
    initialise(module, 0, "normal_0.002")
    assert module[0].weight.abs().max() < 0.02 < before["0.weight"].abs().max()
    assert not module[0].bias.any()
    assert before["0.bias"].any()
    assert module[1].weight.eq(1).all()
    with pytest.raises(UserError, match="'xavier'; choose one of default, xavier_"):
        initialise(module, 0, "xavier")


def test_variants_share_the_initial_weights_of_shared_modules():
    gru = tiny("recurrent_lm", cell="gru")
    mgu = tiny("recurrent_lm", cell="mgu", starts=2)
    gru_weights = gru.state_dict()
    mgu_weights = mgu.state_dict()
    shared = [key for key in gru_weights if key.split(".")[0] in ("embedding", "emission")]
    assert len(shared) == 5
    assert all(gru_weights[key].equal(mgu_weights[key]) for key in shared)
