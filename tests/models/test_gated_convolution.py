"""The gated convolutional model equals torch's convolutions, and its cuts the paper's layers."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from lmzoo import zoo
from lmzoo.models.convolution import Cut
from tests.laws.support import assert_close
from tests.models.equivalence import small
from tests.tiny import FINE, every_sequence, tiny

NAME = "gated_convolution"
VARIANTS: list[dict[str, Any]] = [
    {},
    {"activation": "tanh"},
    {"cuts": [Cut.SQUASH]},
    *({"cuts": [Cut.GATE], "activation": f} for f in ("identity", "tanh", "relu")),
    {"cuts": [Cut.VALUE_PAST]},
    {"cuts": [Cut.GATE_PAST], "window": 3},
    {"cuts": [Cut.RESIDUAL]},
]


def kernel(convolution: torch.nn.Module, width: int, window: int) -> Tensor:
    """Return the weights (E, E, k) that torch's convolution needs: the oldest position first."""
    earlier = [torch.zeros(width, width).double()] * (window - 1)
    if convolution.past is not None:
        earlier = list(convolution.past.weight.split(width, dim=1))
    return torch.stack([convolution.now.weight, *earlier][::-1], dim=2)


def reference(model: torch.nn.Module, tokens: Tensor) -> Tensor:
    """Return the features, computed with `conv1d` on channels first."""
    c = model.config
    functions = {"identity": lambda a: a, "tanh": torch.tanh, "relu": torch.relu}
    x = model.embedding(tokens).mT
    for layer in model.layers:
        padded = pad(x, (c.window - 1, 0))
        value = conv1d(padded, kernel(layer.value, c.width, c.window), layer.value.now.bias)
        y = functions[c.activation](value)
        if Cut.GATE not in c.cuts:
            gate = conv1d(padded, kernel(layer.gate, c.width, c.window), layer.gate.now.bias)
            y = y * gate if Cut.SQUASH in c.cuts else y * gate.sigmoid()
        x = y if Cut.RESIDUAL in c.cuts else x + y
    return x.mT


@torch.no_grad()
@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_features_equal_torch_convolutions(fields: dict[str, Any]) -> None:
    model = small(NAME, **fields).double()
    for parameter in model.parameters():
        parameter.add_(0.1)  # biases start at 0
    tokens, _ = every_sequence(model.task)
    assert_close(model.features(tokens), reference(model, tokens), FINE, "features")


def test_cuts_keep_the_initial_weights_of_what_remains() -> None:
    whole = dict(tiny(NAME).named_parameters())
    for cut in Cut:
        for name, weight in tiny(NAME, cuts=[cut]).named_parameters():
            assert weight.equal(whole[name])


def test_cuts_of_a_gate_that_is_cut_do_not_count() -> None:
    whole = zoo.config(NAME, cuts=["gate", "squash", "gate_past"])
    assert whole == zoo.config(NAME, cuts=[0])
