"""The slope of the boundary detectors, and its growth in training (S2)."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.contract import Task
from lmzoo.data.corpus import open_corpus
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.cells.support import inputs, make
from tests.tiny import tiny

ANNEALED = {"name": "hm_lstm", "anneal": 4}


def test_the_slope_grows_linearly_to_five() -> None:
    cell = make("hm_lstm", anneal=4).train()
    x, start = inputs(cell)
    slopes = []
    for _ in range(6):
        slopes.append(float(cell.slope))
        cell.scan(x, start)
    assert slopes == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]
    from_three = make("hm_lstm", anneal=4, slope=3.0)
    from_three.scan(x, start)
    assert float(from_three.slope) == 3.5


def test_only_training_scans_change_the_slope() -> None:
    cell = make("hm_lstm", anneal=4)
    x, start = inputs(cell)
    cell.eval().scan(x, start)
    with torch.no_grad():
        cell.train().scan(x, start)
    assert float(cell.slope) == 1.0
    assert float(make("hm_lstm", slope=2.0).slope) == 2.0
    assert "scans" not in make("hm_lstm").state_dict()


def test_a_resumed_training_continues_with_the_same_slope() -> None:
    """The number of scans equals the number of steps, and the weights are equal bit for bit."""
    corpus = open_corpus(
        {"name": "iid", "symbols": 3, "length": 5, "train": 60, "valid": 10, "test": 10}
    )
    config = zoo.config("hm_lstm", width=4, cell={"anneal": 20})
    recipe = Recipe(batch=20)

    def new() -> Training:
        return Training(zoo.build(config, corpus.task, 0, recipe.init), recipe, seed=0)

    whole, cut = new(), new()
    list(fit(whole, corpus, 4))
    list(fit(cut, corpus, 2))
    resumed = new()
    resumed.load(cut.dump())
    list(fit(resumed, corpus, 4))
    assert resumed.model.cell.scans == resumed.steps == whole.steps > 0
    assert float(resumed.model.cell.slope) == pytest.approx(1 + 4 * whole.steps / 20)
    for name, value in whole.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name]), name
    restarted = new()
    restarted.load(
        {**cut.dump(), "weights": {**cut.dump()["weights"], "cell.scans": torch.tensor(0)}}
    )
    list(fit(restarted, corpus, 4))
    assert not restarted.model.cell.layers[0].own.equal(whole.model.cell.layers[0].own)


def test_runs_with_an_annealed_slope_are_not_packed() -> None:
    assert "running statistics" in reason_not_packable(tiny("hm_lstm", cell=ANNEALED))
    assert reason_not_packable(tiny("hm_lstm")) == ""


def test_a_slope_that_cannot_grow_is_an_error() -> None:
    with pytest.raises(UserError, match="slope=5 cannot grow to 5 in anneal=3"):
        CELLS.parse({"name": "hm_lstm", "slope": 5.0, "anneal": 3})
    assert zoo.build(zoo.config("hm_lstm", cell=ANNEALED), Task(vocab=5, length=4)).cell.scans == 0
