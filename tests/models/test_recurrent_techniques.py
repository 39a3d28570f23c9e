"""Techniques that apply to any row: named initialisers, and options that are refused."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.errors import UserError
from lmzoo.train.recipe import Recipe

TASK = Task(vocab=50, length=6)


@pytest.mark.parametrize("name", ["lstm_lm", "transformer_decoder"])
def test_named_initialiser_draws_every_matrix_and_clears_every_bias(name: str) -> None:
    config = zoo.config(name)
    plain, drawn = zoo.build(config, TASK), zoo.build(config, TASK, init="uniform_0.01")
    again, other = (zoo.build(config, TASK, seed, "uniform_0.01") for seed in (0, 1))
    matrices = 0
    for path, weight in drawn.named_parameters():
        if weight.dim() >= 2:
            matrices += 1
            assert 0.009 < weight.abs().max() <= 0.01
            assert weight.equal(again.get_parameter(path))
            assert not weight.equal(other.get_parameter(path))
        elif path.rpartition(".")[2].startswith("bias"):
            assert not weight.any()
        else:
            assert weight.equal(plain.get_parameter(path))
    assert matrices >= 3


def test_building_does_not_change_the_global_generator() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        zoo.build(zoo.config("nce"), TASK, init="xavier_normal")
        # Constructors use the global generator; `initialise` must not change it.
        made = torch.get_rng_state()
        torch.set_rng_state(before)
        zoo.build(zoo.config("nce"), TASK)
        assert made.equal(torch.get_rng_state())


def test_unknown_initialiser_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown initialiser 'xavier'"):
        Recipe(init="xavier")


def test_bidirectional_lstm_is_refused() -> None:
    with pytest.raises(UserError, match="bidirectional=True: a language model may not read"):
        zoo.config("lstm_lm", bidirectional=True)
