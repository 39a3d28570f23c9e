"""A corpus of sixty short sequences with a pattern to learn, and a stand-in for CUDA graphs."""

import sys

import pytest
import torch

from lmzoo.contract import PAD, START, LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.kernels import dispatch
from lmzoo.train import stepper
from lmzoo.train.kept_trainers import KeptTrainers
from tests.train.fake_recorder import FakeRecorder
from tests.train.members import model_of


def _sequences(count: int, seed: int) -> Sequences:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 9, (count, 8), generator=generator)
    # Every second token repeats the one before it, which a model can learn.
    tokens[:, 2::2] = tokens[:, 1:6:2]
    tokens[:, 0] = START
    lengths = torch.randint(3, 9, (count,), generator=generator)
    padded = torch.arange(8) >= lengths[:, None]
    tokens[padded] = PAD
    return Sequences(tokens, lengths)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    vocabulary = Vocabulary(SPECIALS + tuple("abcde"))
    train = _sequences(60, seed=0)
    valid = _sequences(20, seed=1)
    test = _sequences(20, seed=2)
    return Corpus("toy", vocabulary, train, valid, test, unit="word", source="made here")


@pytest.fixture
def model(corpus: Corpus) -> LanguageModel:
    return model_of(corpus)


@pytest.fixture
def trainers() -> KeptTrainers:
    return KeptTrainers()


@pytest.fixture
def fake_recorder(monkeypatch: pytest.MonkeyPatch) -> FakeRecorder:
    """Record and replay the steps of all trainings that the test creates, as on CUDA."""
    recorder = FakeRecorder()
    monkeypatch.setattr(stepper, "device_recorder", lambda device: recorder)
    # On CUDA, RMSprop reads a learning rate that is a tensor without synchronising.
    rmsprop = sys.modules["torch.optim.rmsprop"]
    monkeypatch.setattr(rmsprop, "_get_capturable_supported_devices", lambda: ["cpu"])
    # On CUDA there are no kernels, so every operation is one of torch's.
    monkeypatch.setattr(dispatch, "DTYPES", set())
    return recorder
