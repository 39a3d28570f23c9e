import pytest
import torch

from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from tests.emissions.support import contexts, make
from tests.laws.support import assert_close
from tests.tiny import FINE


@pytest.fixture(params=EMISSIONS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=Norm)
def emission(name: str, request: pytest.FixtureRequest) -> Emission:
    return make(name, request.param)


def test_dense_probabilities_sum_to_one(emission: Emission) -> None:
    y, _, table = contexts()
    total = emission.dense(y, table).exp().sum(-1)
    assert_close(total, torch.ones_like(total), FINE, "total probability")


def test_scores_are_the_dense_values_of_the_targets(emission: Emission) -> None:
    y, targets, table = contexts()
    dense = emission.dense(y, table).gather(-1, targets[..., None])[..., 0]
    assert_close(emission.log_prob(y, targets, table), dense, FINE, "scores")


def test_leading_axes_are_independent(emission: Emission) -> None:
    y, targets, table = contexts()
    stack = torch.stack([y, y.flip(0), -y])
    scores = emission.log_prob(stack, targets, table)
    expected = torch.stack([emission.log_prob(part, targets, table) for part in stack])
    assert_close(scores, expected, FINE, "scores with a leading axis")


def test_positions_are_independent(emission: Emission) -> None:
    y, targets, table = contexts()
    changed = torch.cat([y[:, :2], y[:, 2:] + 1], dim=1)
    scores = emission.log_prob(changed, targets, table)[:, :2]
    assert_close(scores, emission.log_prob(y, targets, table)[:, :2], 0, "scores before a change")
