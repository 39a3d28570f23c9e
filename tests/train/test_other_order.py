"""A run has the same losses up to 1e-6 whoever is in its pack, with sums in another order, too."""

import contextlib

import pytest

from lmzoo import zoo
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training
from tests.other_order import other_order

ROUNDING = 1e-6
"""Relative: docs/how/sweep.md."""
EPOCHS = 3
PACKS = ((0, 1), (1, 0), (0, 1, 2, 3, 4), (1, 2, 3, 4, 0))
ROWS = ("DLM46", "gru", "lstm_lm", "gla")


def losses(row, corpus, seeds, order) -> list[float]:
    """Return the losses of seed 0, trained in a pack of these seeds."""
    config = zoo.config(row, width=8)
    pack = []
    for seed in seeds:
        model = zoo.build(config, corpus.task, seed)
        pack.append(Training(model, Recipe(batch=16), seed))
    observed = pack[seeds.index(0)]
    trainers = KeptTrainers()
    found = []
    with order():
        for _ in range(EPOCHS):
            trainers.train_epoch(pack, corpus)
            found.append(observed.record["valid_token"])
    return found


@pytest.mark.parametrize("row", ROWS)
def test_the_losses_of_a_run_do_not_depend_on_its_pack(row, corpus):
    alone = losses(row, corpus, (0,), contextlib.nullcontext)
    packed = [losses(row, corpus, seeds, other_order) for seeds in PACKS]
    for own in packed:
        assert own == pytest.approx(alone, rel=ROUNDING)
    assert any(own != packed[0] for own in packed), "the order of sums has changed no digit"
