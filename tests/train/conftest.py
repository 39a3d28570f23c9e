"""A corpus of sixty short sequences with something to learn."""

import sys

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.kernels import dispatch as processor
from lmzoo.train.capture import stepper
from tests.train.tape import Taping


def _sequences(count: int, seed: int) -> Sequences:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 9, (count, 8), generator=generator)
    tokens[:, 2::2] = tokens[:, 1::2][:, : tokens[:, 2::2].shape[1]]  # every other one repeats
    tokens[:, 0] = 1
    lengths = torch.randint(3, 9, (count,), generator=generator)
    tokens[torch.arange(8) >= lengths[:, None]] = 0
    return Sequences(tokens, lengths)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    words = Vocabulary((*SPECIALS, *"abcde"))
    parts = (_sequences(n, seed) for seed, n in enumerate((60, 20, 20)))
    return Corpus("toy", words, *parts, unit="word", source="made here")


@pytest.fixture
def model(corpus: Corpus) -> LanguageModel:
    config = zoo.config("DLM46", width=4, emission={"components": 3})
    return zoo.build(config, corpus.task)


@pytest.fixture
def taping(monkeypatch: pytest.MonkeyPatch) -> Taping:
    """Trainings made from here on are replayed, as on CUDA."""
    found = Taping()
    monkeypatch.setattr(stepper, "recorder", lambda device: found)
    # As on CUDA, where RMSprop reads a learning rate that is a tensor without waiting.
    rmsprop = sys.modules["torch.optim.rmsprop"]
    monkeypatch.setattr(rmsprop, "_get_capturable_supported_devices", lambda: ["cpu"])
    # As on CUDA, where every operation is one of torch's.
    monkeypatch.setattr(processor, "TYPES", set())
    return found
