"""The file of a training's state: everything comes back, and it stays torch's own format."""

import io

import pytest
import torch

from lmzoo import zoo
from lmzoo.train.checkpoint import checkpoint, read_checkpoint
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit


def _trained(corpus, epochs, **recipe):
    config = zoo.config("DLM46", width=4, emission={"components": 3})
    training = Training(zoo.build(config, corpus.task, 1), Recipe(batch=16, **recipe), seed=1)
    list(fit(training, corpus, epochs))
    return training


def _same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            _same(one[key], other[key])
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_what_is_written_is_what_is_read(corpus, optimiser, epochs):
    state = _trained(corpus, epochs, optimiser=optimiser).dump()
    _same(read_checkpoint(checkpoint(state)), state)


def test_every_tensor_has_memory_of_its_own(corpus):
    """Or a training that goes on would keep all of the file for as long as one is used."""
    state = read_checkpoint(checkpoint(_trained(corpus, 1).dump()))["optimiser"]["state"]
    held = [value for of_one in state.values() for value in of_one.values()]
    assert all(value.untyped_storage().nbytes() == value.nbytes for value in held)


def test_numbers_of_several_types_are_left_as_they_are(corpus):
    training = _trained(corpus, 1)
    state = training.dump()
    state["optimiser"]["state"][0]["exp_avg"] = torch.arange(3)
    _same(read_checkpoint(checkpoint(state)), state)


def test_a_file_of_before_is_read(corpus):
    """All tensors by themselves, as `torch.save` writes them."""
    state, file = _trained(corpus, 2).dump(), io.BytesIO()
    torch.save(state, file)
    _same(read_checkpoint(file.getvalue()), state)
    assert len(checkpoint(state)) < len(file.getvalue())


def test_others_can_read_the_weights_without_us(corpus):
    training = _trained(corpus, 1)
    state = torch.load(io.BytesIO(checkpoint(training.dump())), weights_only=True)
    _same(dict(state["weights"]), dict(training.model.state_dict()))
    _same(dict(state["best"]["weights"]), dict(training.best_weights))
