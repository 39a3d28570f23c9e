import torch

from lmzoo.functional.normalise import Norm
from lmzoo.laws.support import assert_close
from tests.emissions.support import WIDTH, contexts, make
from tests.tiny import FINE, SAME


def test_it_is_a_tied_softmax() -> None:
    y, _, table = contexts()
    expected = torch.log_softmax(torch.einsum("bte,ve->btv", y, table), dim=-1)
    assert_close(make("vector").dense(y, table), expected, FINE, "dense")


def test_it_has_a_temperature_only_with_norm_l2() -> None:
    names = {norm: [name for name, _ in make("vector", norm).named_parameters()] for norm in Norm}
    assert names == {norm: ["log_scale"] if norm is Norm.L2 else [] for norm in Norm}


def test_the_initial_temperature_equals_norm_rms() -> None:
    y, _, table = contexts()
    unit = torch.nn.functional.normalize(y, dim=-1)
    expected = make("vector", Norm.RMS).dense(unit * WIDTH**0.5, table)
    assert_close(make("vector", Norm.L2).dense(unit, table), expected, SAME, "dense")
