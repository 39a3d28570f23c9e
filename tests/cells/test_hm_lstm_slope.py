"""The slope of the boundary detectors, which may grow while the cell is trained (S2)."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import Task
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.train.packed.compatibility import reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.cells.run import inputs, make
from tests.laws.support import assert_close
from tests.tiny import FINE, SAME, tiny

ANNEALED = {"name": "hm_lstm", "anneal": 4}


def test_it_grows_in_even_steps_to_five_and_stays() -> None:
    cell = make("hm_lstm", anneal=4).train()
    x, start = inputs(cell)
    slopes = []
    for _ in range(6):
        slopes.append(float(cell.slope))
        cell.scan(x, start)
    assert slopes == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]
    begins_at_three = make("hm_lstm", anneal=4, slope=3.0)
    begins_at_three.scan(x, start)
    assert float(begins_at_three.slope) == 3.5


def test_only_training_moves_it() -> None:
    cell = make("hm_lstm", anneal=4)
    x, start = inputs(cell)
    cell.eval().scan(x, start)
    with torch.no_grad():
        cell.train().scan(x, start)
    assert float(cell.slope) == 1.0
    assert float(make("hm_lstm", slope=2.0).slope) == 2.0
    assert "scans" not in make("hm_lstm").state_dict()


def test_it_shapes_the_gradient_and_never_the_outputs() -> None:
    cell = make("hm_lstm", depth=3, length=8, anneal=4).train()
    x, start = inputs(cell)
    outputs, gradients = [], []
    for _ in range(5):
        y = cell.scan(x, start)
        (gradient,) = torch.autograd.grad(y.sum(), cell.layers[0].bias)
        outputs.append(y.detach())
        gradients.append(gradient)
    for y in outputs[1:]:
        assert_close(y, outputs[0], 0, "outputs")
    assert (gradients[4] - gradients[0]).abs().max() > SAME
    steep = make("hm_lstm", depth=3, length=8, slope=5.0)
    (expected,) = torch.autograd.grad(steep.scan(x, start).sum(), steep.layers[0].bias)
    assert_close(gradients[4], expected, FINE, "the gradient at slope 5")


def test_a_training_that_was_cut_off_goes_on_with_its_slope() -> None:
    """One scan a step, so after every epoch the count is the optimiser's; and bit for bit."""
    corpus = open_corpus(
        {"name": "iid", "symbols": 3, "length": 5, "train": 60, "valid": 10, "test": 10}
    )
    config = zoo.config("hm_lstm", width=4, cell={"anneal": 20})
    recipe = Recipe(batch=20)

    def begun() -> Training:
        return Training(zoo.build(config, corpus.task, 0, recipe.init), recipe, seed=0)

    whole, cut = begun(), begun()
    list(fit(whole, corpus, 4))
    list(fit(cut, corpus, 2))
    again = begun()
    again.load(cut.dump())
    list(fit(again, corpus, 4))
    assert again.model.cell.scans == again.steps == whole.steps > 0
    assert float(again.model.cell.slope) == pytest.approx(1 + 4 * whole.steps / 20)
    for name, value in whole.model.state_dict().items():
        assert value.equal(again.model.state_dict()[name]), name
    scans = begun()
    scans.load({**cut.dump(), "weights": {**cut.dump()["weights"], "cell.scans": torch.tensor(0)}})
    list(fit(scans, corpus, 4))
    assert not scans.model.cell.layers[0].own.equal(whole.model.cell.layers[0].own)


def test_members_do_not_share_a_slope() -> None:
    assert "running statistics" in reason_not_packable(tiny("hm_lstm", cell=ANNEALED))
    assert reason_not_packable(tiny("hm_lstm")) == ""


def test_a_slope_that_cannot_grow_is_refused() -> None:
    with pytest.raises(UserError, match="slope=5 cannot grow to 5 in anneal=3"):
        CELLS.parse({"name": "hm_lstm", "slope": 5.0, "anneal": 3})
    assert zoo.build(zoo.config("hm_lstm", cell=ANNEALED), Task(vocab=5, length=4)).cell.scans == 0
