"""A checkpoint file restores the whole state, and torch alone can read its weights."""

import io

import pytest
import torch

from lmzoo.train.checkpoint import checkpoint_bytes, read_checkpoint
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import fit
from tests.train.members import member


def _trained(corpus, epochs, **recipe):
    training = member(corpus, 1, Recipe(batch=16, **recipe))
    list(fit(training, corpus, epochs))
    return training


def _read_again(state):
    content = checkpoint_bytes(state)
    return read_checkpoint(content)


def _assert_equal(actual, expected):
    # Not only equal: an int is no float.
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            _assert_equal(actual[key], expected[key])
    elif isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        assert torch.equal(actual, expected)
    else:
        assert actual == expected


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_reading_returns_the_written_state(corpus, optimiser, epochs):
    training = _trained(corpus, epochs, optimiser=optimiser)
    state = training.dump()
    _assert_equal(_read_again(state), state)


def test_every_tensor_has_its_own_storage(corpus):
    """Views of one large tensor would keep all of it in memory."""
    training = _trained(corpus, 1)
    optimiser = _read_again(training.dump())["optimiser"]
    for values in optimiser["state"].values():
        for value in values.values():
            storage = value.untyped_storage()
            assert storage.nbytes() == value.nbytes


def test_optimiser_state_of_several_dtypes_is_not_flattened(corpus):
    training = _trained(corpus, 1)
    state = training.dump()
    # The other moments are float32.
    state["optimiser"]["state"][0]["exp_avg"] = torch.arange(3)
    _assert_equal(_read_again(state), state)


def test_torch_reads_the_weights_without_this_package(corpus):
    training = _trained(corpus, 1)
    content = checkpoint_bytes(training.dump())
    state = torch.load(io.BytesIO(content), weights_only=True)
    _assert_equal(dict(state["weights"]), dict(training.model.state_dict()))
    _assert_equal(dict(state["best"]["weights"]), dict(training.best_weights))
