import torch

from lmzoo.functional.normalise import Norm
from tests.emissions.heads import WIDTH, contexts, make
from tests.laws.ask import same
from tests.tiny import FINE, SAME


def test_it_is_the_tied_softmax() -> None:
    y, _, table = contexts()
    expected = torch.log_softmax(torch.einsum("bte,ve->btv", y, table), dim=-1)
    same(make("vector").dense(y, table), expected, FINE, "dense")


def test_it_owns_a_temperature_only_on_the_unit_sphere() -> None:
    owned = {norm: [name for name, _ in make("vector", norm).named_parameters()] for norm in Norm}
    assert owned == {norm: ["log_scale"] if norm is Norm.L2 else [] for norm in Norm}


def test_the_temperature_undoes_the_unit_sphere_at_the_start() -> None:
    y, _, table = contexts()
    unit = torch.nn.functional.normalize(y, dim=-1)
    expected = make("vector", Norm.RMS).dense(unit * WIDTH**0.5, table)
    same(make("vector", Norm.L2).dense(unit, table), expected, SAME, "dense")
