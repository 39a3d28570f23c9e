"""Models whose most likely sequences are known, by construction or by enumeration."""

import torch

from lmzoo.contract import END, LanguageModel, Task
from lmzoo.decode import is_end
from tests.tiny import every_sequence, tiny
from tests.toy_model import Bigram

SIGNS = ["<pad>", "<start>", "<end>", "<unk>", *"苹大果象人妈便军米姐"]
PLACES = {sign: place for place, sign in enumerate(SIGNS)}
AFTER_LARGE = {"象": 10, "人": 8, "妈": 12, "便": 5, "军": 5, "米": 8, "姐": 7}
"""Percent of all sequences."""


class Apple(Bigram):
    """The beam search example of S3.

    The first sign is 大 (0.55), which has seven continuations, or 苹 (0.45), which has one.
    """

    def __init__(self):
        count = len(SIGNS)
        task = Task(vocab=count, length=4)
        super().__init__(Bigram.Config(), task)
        probabilities = torch.zeros(count, count)
        first = probabilities[PLACES["<start>"]]
        first[PLACES["苹"]] = 0.45
        first[PLACES["大"]] = 0.55
        fruit = probabilities[PLACES["苹"]]
        fruit[PLACES["果"]] = 1.0
        large = probabilities[PLACES["大"]]
        for sign, percent in AFTER_LARGE.items():
            large[PLACES[sign]] = percent / 55
        # Every other sign is the last one.
        is_last = probabilities.sum(1) == 0
        probabilities[is_last, END] = 1.0
        self.table.load_state_dict({"weight": probabilities.log()})


def to_text(tokens: tuple[int, ...] | list[int]) -> str:
    """Return the signs without special tokens."""
    words = [SIGNS[token] for token in tokens if token > 3]
    return "".join(words)


def sharp_model(
    name: str, *, factor: float = 4, vocab: int = 4, length: int = 4, **fields
) -> LanguageModel:
    """Build a row and multiply its weights, so that token probabilities differ clearly."""
    model = tiny(name, vocab=vocab, length=length, **fields).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


@torch.no_grad()
def all_sequences(model: LanguageModel) -> dict[tuple[int, ...], float]:
    """Return every sequence that a decoder may return, with its log-probability (float64)."""
    tokens, _ = every_sequence(model.task)
    ended = is_end(tokens)
    ended[:, 0] = False
    ended[:, -1] = True
    lengths = ended.int().argmax(1) + 1
    scores = model.log_prob(tokens, lengths).double()
    totals = scores.sum(1).tolist()
    found = {}
    for row, size, total in zip(tokens, lengths, totals, strict=True):
        sequence = row[:size].tolist()
        found[tuple(sequence)] = total
    return found
