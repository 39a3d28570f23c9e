"""What a cut model inherits of the weights of a whole one."""

import torch

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.train.cut_weights import Variant, differs_in_cuts, inherited, variants

TASK = Task(vocab=9, length=5)
WIDTH = 4


def recurrent(cell, cuts=()):
    part = {"name": cell, "cuts": [*cuts]}
    return zoo.config("recurrent_lm", cell=part, emission="vector", width=WIDTH)


def test_the_rows_of_a_gate_that_is_cut_are_left_out():
    whole, cut = (zoo.build(recurrent("gru", cuts), TASK) for cuts in ((), ["state_to_update"]))
    trained = {name: torch.randn(x.shape) for name, x in whole.state_dict().items()}
    left = inherited(whole, cut)
    left.load(cut, trained)
    r, z, n = trained["cell.w.weight_hh"].chunk(3)
    assert cut.state_dict()["cell.w.weight_hh"].equal(torch.cat([r, n]))
    assert cut.state_dict()["cell.w.weight_ih"].equal(trained["cell.w.weight_ih"])
    assert left.removed.keys() == {"cell.w.weight_hh"}
    assert left.removed["cell.w.weight_hh"].chunk(3)[1].all()
    assert int(left.removed["cell.w.weight_hh"].sum()) == z.numel()


def test_weights_that_a_cut_brings_are_its_own():
    cut = zoo.build(recurrent("mamba", ["b"]), TASK)
    assert inherited(zoo.build(recurrent("mamba"), TASK), cut).own == ("cell.w.fixed_b",)


def test_all_functions_of_one_and_two_cuts_are_listed_once():
    found = [*variants(recurrent("mgu"), pairs=True)]
    models = [each for each in found if isinstance(each, Variant)]
    assert len({each.config for each in models}) == len(models) > 8
    [refused] = [each for each in found if isinstance(each, str)]
    assert "leave h = 0" in refused
    assert models[0].fields == {"cell.cuts": ["input_to_gate"]}
    assert differs_in_cuts(models[0].config, recurrent("mgu"))
    assert not differs_in_cuts(recurrent("mgu"), recurrent("gru"))
