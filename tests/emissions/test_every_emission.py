import pytest
import torch

from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from tests.emissions.heads import contexts, make
from tests.laws.ask import same
from tests.tiny import FINE


@pytest.fixture(params=EMISSIONS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=Norm)
def head(name: str, request: pytest.FixtureRequest) -> Emission:
    return make(name, request.param)


def test_dense_is_a_distribution(head: Emission) -> None:
    y, _, table = contexts()
    total = head.dense(y, table).exp().sum(-1)
    same(total, torch.ones_like(total), FINE, "total probability")


def test_a_score_is_the_dense_entry_of_its_target(head: Emission) -> None:
    y, targets, table = contexts()
    dense = head.dense(y, table).gather(-1, targets[..., None])[..., 0]
    same(head.log_prob(y, targets, table), dense, FINE, "scores")


def test_leading_axes_are_scored_each_by_itself(head: Emission) -> None:
    y, targets, table = contexts()
    several = torch.stack([y, y.flip(0), -y])
    found = head.log_prob(several, targets, table)
    each = torch.stack([head.log_prob(one, targets, table) for one in several])
    same(found, each, FINE, "scores of several starts")


def test_a_context_is_scored_by_itself(head: Emission) -> None:
    y, targets, table = contexts()
    changed = torch.cat([y[:, :2], y[:, 2:] + 1], dim=1)
    found = head.log_prob(changed, targets, table)[:, :2]
    same(found, head.log_prob(y, targets, table)[:, :2], 0, "scores before a change")
