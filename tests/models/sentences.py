"""Sentences of token ids for count models."""

import torch
from torch import Tensor

from lmzoo.contract import END, PAD, START

Sentence = tuple[int, ...]


def pad_sentences(sentences: list[Sentence], length: int) -> tuple[Tensor, Tensor]:
    lengths = [len(sentence) for sentence in sentences]
    shape = (len(sentences), length)
    tokens = torch.full(shape, PAD)
    for row, sentence in zip(tokens, sentences, strict=True):
        row[: len(sentence)] = torch.tensor(sentence)
    return tokens, torch.tensor(lengths)


def random_sentences(count: int, vocab: int, length: int, seed: int) -> list[Sentence]:
    """Return sentences of a bigram source with skewed frequencies, with `<start>` and `<end>`."""
    generator = torch.Generator().manual_seed(seed)
    # The first four ids are special tokens.
    words = torch.arange(vocab - 4)
    sentences = []
    for _ in range(count):
        sentence = [START]
        last = 0
        size = torch.randint(1, length - 1, (1,), generator=generator)
        for _ in range(int(size)):
            # The last word decides which words are frequent next.
            ranks = 1 + (words - 3 * last) % len(words)
            weights = 1.0 / ranks**1.5
            drawn = torch.multinomial(weights, 1, generator=generator)
            last = int(drawn)
            sentence.append(4 + last)
        sentences.append(tuple(sentence + [END]))
    return sentences
