"""Laws of all emissions, the vector emission, and the memory that training takes."""

from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.laws.emissions import EMISSION_LAWS
from lmzoo.laws.tiny import assert_close, loss
from tests.emissions.support import WIDTH, contexts, make
from tests.largest_tensor import LargestTensorMode
from tests.tiny import SAME, assert_equal_double, batch


@pytest.fixture(params=EMISSIONS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=Norm)
def emission(name: str, request: pytest.FixtureRequest) -> Emission:
    return make(name, request.param)


@pytest.mark.parametrize("law", EMISSION_LAWS, ids=lambda law: law.__name__)
def test_every_emission_obeys_every_law(emission, law):
    law(emission)


def test_it_is_a_tied_softmax():
    y, _, table = contexts()
    logits = y @ table.T
    assert_equal_double(make("vector").dense(y, table), logits.log_softmax(-1))


@pytest.mark.parametrize("norm", Norm)
def test_it_has_a_temperature_only_with_norm_l2(norm):
    names = [name for name, _ in make("vector", norm).named_parameters()]
    if norm is Norm.L2:
        assert names == ["log_scale"]
    else:
        assert names == []


def test_the_initial_temperature_equals_norm_rms():
    y, _, table = contexts()
    unit = torch.nn.functional.normalize(y, dim=-1)
    expected = make("vector", Norm.RMS).dense(unit * WIDTH**0.5, table)
    assert_close(make("vector", Norm.L2).dense(unit, table), expected, SAME, "dense")


VOCAB = 200
LENGTH = 6
COUNT = 8
SIZE = 4
COMPONENTS = 3


def largest_numel(emission: dict[str, Any]) -> int:
    """Return the number of elements of the largest tensor in a training step."""
    config = zoo.config("recurrent_lm", cell="rnn", width=SIZE, emission=emission)
    model = zoo.build(config, Task(vocab=VOCAB, length=LENGTH))
    with LargestTensorMode() as seen:
        loss(model, *batch(model.task, count=COUNT)).backward()
    return seen.max_numel


def test_the_dense_form_computes_a_tensor_of_shape_b_t_v():
    with without_kernels():
        assert largest_numel({"name": "vector"}) >= COUNT * (LENGTH - 1) * VOCAB


@pytest.mark.parametrize(
    "emission", [{"name": "vector"}, {"name": "mixture", "components": COMPONENTS}]
)
def test_an_emission_computes_no_tensor_of_shape_b_t_v(emission):
    assert largest_numel(emission) <= SIZE * VOCAB
