"""Laws of all emissions, the vector emission, and the memory that training takes."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.laws.emissions import EMISSION_LAWS
from lmzoo.laws.tiny import assert_close, loss
from tests.cases import parametrize
from tests.emissions.support import WIDTH, contexts, make
from tests.largest_tensor import LargestTensorMode
from tests.tiny import SAME, assert_equal_double, batch


@pytest.fixture(params=EMISSIONS)
def name(request):
    return request.param


@pytest.fixture(params=Norm)
def emission(name, request):
    return make(name, request.param)


EACH_LAW = parametrize("law", EMISSION_LAWS, ids=lambda law: law.__name__)


@EACH_LAW
def test_every_emission_obeys_every_law(emission, law):
    law(emission)


def test_it_is_a_tied_softmax():
    y, _, table = contexts()
    logits = y @ table.T
    actual = make("vector").dense(y, table)
    expected = logits.log_softmax(-1)
    assert_equal_double(actual, expected)


@parametrize("norm", Norm)
def test_it_has_a_temperature_only_with_norm_l2(norm):
    emission = make("vector", norm)
    names = [name for name, _ in emission.named_parameters()]
    expected = []
    if norm is Norm.L2:
        expected = ["log_scale"]
    assert names == expected


def test_the_initial_temperature_equals_norm_rms():
    y, _, table = contexts()
    unit = torch.nn.functional.normalize(y, dim=-1)
    # RMS norm makes vectors as long as the root of their width.
    long = unit * WIDTH**0.5
    expected = make("vector", Norm.RMS).dense(long, table)
    actual = make("vector", Norm.L2).dense(unit, table)
    assert_close(actual, expected, SAME, "dense")


VOCAB = 200
LENGTH = 6
COUNT = 8
SIZE = 4


def largest_numel(emission):
    """Return the number of elements of the largest tensor in a training step."""
    config = zoo.config("recurrent_lm", cell="rnn", width=SIZE, emission=emission)
    model = zoo.build(config, Task(vocab=VOCAB, length=LENGTH))
    tokens, lengths = batch(model.task, count=COUNT)
    with LargestTensorMode() as seen:
        loss(model, tokens, lengths).backward()
    return seen.max_numel


VECTOR = {"name": "vector"}
MIXTURE = {"name": "mixture", "components": 3}


def test_the_dense_form_computes_a_tensor_of_shape_b_t_v():
    with without_kernels():
        largest = largest_numel(VECTOR)
    assert largest >= COUNT * (LENGTH - 1) * VOCAB


@parametrize("emission", [VECTOR, MIXTURE])
def test_an_emission_computes_no_tensor_of_shape_b_t_v(emission):
    assert largest_numel(emission) <= SIZE * VOCAB
