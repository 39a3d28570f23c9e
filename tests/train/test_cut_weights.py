"""What a cut model inherits of the weights of a whole one."""

import torch

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.train.cut_weights import Variant, differs_in_cuts, inherited, variants

TASK = Task(vocab=9, length=5)
WIDTH = 4


def recurrent(cell, cuts=()):
    part = {"name": cell, "cuts": list(cuts)}
    return zoo.config("recurrent_lm", cell=part, emission="vector", width=WIDTH)


def built(cell, cuts=()):
    return zoo.build(recurrent(cell, cuts), TASK)


def test_the_rows_of_a_gate_that_is_cut_are_left_out():
    whole = built("gru")
    cut = built("gru", ["state_to_update"])
    trained = {name: torch.randn(x.shape) for name, x in whole.state_dict().items()}
    left = inherited(whole, cut)
    left.load(cut, trained)
    of_state = trained["cell.w.weight_hh"]
    # torch's order of the gates is r, z, n.
    reset, update, candidate = of_state.chunk(3)
    loaded = cut.state_dict()
    kept = torch.cat([reset, candidate])
    assert loaded["cell.w.weight_hh"].equal(kept)
    assert loaded["cell.w.weight_ih"].equal(trained["cell.w.weight_ih"])
    assert left.removed.keys() == {"cell.w.weight_hh"}
    (removed,) = left.removed.values()
    assert of_state[removed].equal(update.flatten())


def test_weights_that_a_cut_brings_are_its_own():
    whole = built("mamba")
    cut = built("mamba", ["b"])
    assert inherited(whole, cut).own == ("cell.w.fixed_b",)


def test_all_functions_of_one_and_two_cuts_are_listed_once():
    found = variants(recurrent("mgu"), pairs=True)
    models = [each for each in found if isinstance(each, Variant)]
    different = {each.config for each in models}
    # More than the single cuts of an MGU.
    assert len(different) == len(models) > 8
    assert models[0].fields == {"cell.cuts": ["input_to_gate"]}


def test_cuts_that_cannot_be_are_listed_with_the_reason():
    found = variants(recurrent("mgu"), pairs=True)
    [refused] = [each for each in found if isinstance(each, str)]
    # Without its carry and its write, a cell has no state.
    assert "leave h = 0" in refused


def test_a_variant_differs_in_its_cuts():
    mgu = recurrent("mgu")
    assert differs_in_cuts(recurrent("mgu", ["input_to_gate"]), mgu)
    assert not differs_in_cuts(mgu, recurrent("gru"))
