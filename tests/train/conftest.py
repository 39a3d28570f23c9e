"""A corpus of sixty short sequences with a pattern to learn, and a stand-in for CUDA graphs."""

import sys

import pytest
import torch

from lmzoo.contract import LanguageModel
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
    tokens[:, 2::2] = tokens[:, 1::2][:, : tokens[:, 2::2].shape[1]]  # every second token repeats
    tokens[:, 0] = 1
    lengths = torch.randint(3, 9, (count,), generator=generator)
    tokens[torch.arange(8) >= lengths[:, None]] = 0
    return Sequences(tokens, lengths)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    vocabulary = Vocabulary((*SPECIALS, *"abcde"))
    parts = (_sequences(n, seed) for seed, n in enumerate((60, 20, 20)))
    return Corpus("toy", vocabulary, *parts, unit="word", source="made here")


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
