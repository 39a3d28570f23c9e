"""A corpus of sixty short sequences with something to learn."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary


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
