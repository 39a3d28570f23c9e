"""What a run keeps of its test: a loss for each sequence, for the budget it was tested at."""

import numpy as np
import pytest

from lmzoo import zoo
from lmzoo.store.records import RunFolder
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run, run_config


@pytest.fixture
def config(corpus):
    model = zoo.config("DLM46", width=4, emission={"components": 3})
    return run_config(model, Recipe(batch=16), corpus, {"name": "toy"}, seed=0)


def test_the_kept_losses_give_the_recorded_ones(tmp_path, config, corpus):
    folder = RunFolder(tmp_path / "run")
    run = Run(folder, config, corpus)
    tested = {}
    for budget in (1, 3):
        list(run.train(budget))
        tested[budget] = run.test()
    run.close()
    for record in (r for r in folder.records() if r["event"] == "test"):
        kept = np.load(folder.losses(record["epoch"]))
        assert kept.dtype == np.float32
        assert kept.shape == (2, len(corpus.test))
        nll, tokens = kept.astype(np.float64)
        assert np.allclose(nll, tested[record["epoch"]].nll.numpy(), rtol=1e-6)
        assert np.isclose(nll.sum() / tokens.sum(), record["token"], rtol=1e-6)
        assert np.isclose((nll / tokens).mean(), record["sentence"], rtol=1e-6)
    assert not np.allclose(np.load(folder.losses(1))[0], np.load(folder.losses(3))[0])
    assert not list(folder.path.glob(".test*"))
