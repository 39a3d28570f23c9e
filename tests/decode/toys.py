"""Models whose most likely sequences are known, by construction or by enumeration."""

import torch

from lmzoo.contract import END, LanguageModel, Task
from lmzoo.decode import is_end
from tests.tiny import every_sequence, tiny
from tests.toy_model import Bigram

SIGNS = ["<pad>", "<start>", "<end>", "<unk>", *"苹大果象人妈便军米姐"]


class Apple(Bigram):
    """The beam search example of S3.

    The first sign is 大 (0.55), which has seven continuations, or 苹 (0.45), which has one.
    """

    def __init__(self):
        super().__init__(Bigram.Config(), Task(vocab=len(SIGNS), length=4))
        probabilities = torch.zeros(len(SIGNS), len(SIGNS))
        first = probabilities[SIGNS.index("<start>")]
        second = probabilities[SIGNS.index("大")]
        first[SIGNS.index("苹")] = 0.45
        first[SIGNS.index("大")] = 0.55
        probabilities[SIGNS.index("苹"), SIGNS.index("果")] = 1.0
        for sign, percent in zip("象人妈便军米姐", (10, 8, 12, 5, 5, 8, 7), strict=True):
            second[SIGNS.index(sign)] = percent / 55
        probabilities[probabilities.sum(1) == 0, END] = 1.0
        with torch.no_grad():
            self.table.weight.copy_(probabilities.log())


def to_text(tokens: tuple[int, ...] | list[int]) -> str:
    """Return the signs without special tokens."""
    return "".join(SIGNS[token] for token in tokens if token > 3)


def sharp_model(name: str, *, factor: float = 4, **fields) -> LanguageModel:
    """Build a row and multiply its weights, so that token probabilities differ clearly."""
    model = tiny(name, **{"vocab": 4, "length": 4, **fields}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


@torch.no_grad()
def all_sequences(model: LanguageModel) -> dict[tuple[int, ...], float]:
    """Return every sequence that a decoder may return, with its log-probability (float64)."""
    tokens, _ = every_sequence(model.task)
    ended = is_end(tokens) & (torch.arange(tokens.shape[1]) > 0)
    ended[:, -1] = True
    lengths = ended.int().argmax(1) + 1
    scores = model.log_prob(tokens, lengths).double().sum(1).tolist()
    keys = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    return dict(zip(keys, scores, strict=True))
