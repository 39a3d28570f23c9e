"""Models whose likeliest sequences are known: by hand, or by listing all."""

from typing import Any

import torch
from torch import Tensor

from lmzoo.contract import END, LanguageModel, Task
from lmzoo.decode.start import ends
from tests.faults import Bigram
from tests.tiny import every_sequence, tiny

SIGNS = ["<pad>", "<start>", "<end>", "<unk>", *"苹大果象人妈便军米姐"]


class Apple(Bigram):
    """The seed's example: the first sign of 0.55 may go on in seven ways, that of 0.45 in one."""

    def __init__(self) -> None:
        super().__init__(Bigram.Config(), Task(vocab=len(SIGNS), length=4))
        chances = torch.zeros(len(SIGNS), len(SIGNS))
        first, second = chances[SIGNS.index("<start>")], chances[SIGNS.index("大")]
        first[SIGNS.index("苹")], first[SIGNS.index("大")] = 0.45, 0.55
        chances[SIGNS.index("苹"), SIGNS.index("果")] = 1.0
        for sign, both in zip("象人妈便军米姐", (10, 8, 12, 5, 5, 8, 7), strict=True):
            second[SIGNS.index(sign)] = both / 55
        chances[chances.sum(1) == 0, END] = 1.0
        with torch.no_grad():
            self.table.weight.copy_(chances.log())


def read(tokens: tuple[int, ...] | list[int]) -> str:
    """The signs, without the special ones."""
    return "".join(SIGNS[token] for token in tokens if token > 3)


def sharp(
    name: str, *, vocab: int = 4, length: int = 4, factor: float = 4, **fields: Any
) -> LanguageModel:
    """The row with weights so large that its tokens differ in probability."""
    model = tiny(name, vocab=vocab, length=length, **fields).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


@torch.no_grad()
def every_ending(model: LanguageModel, *given: Tensor) -> dict[tuple[int, ...], float]:
    """All sequences a decoder may return, and the log-probability of each (float64)."""
    whole, _ = every_sequence(model.task)
    over = ends(whole) & (torch.arange(whole.shape[1]) > 0)
    over[:, -1] = True
    lengths = over.int().argmax(1) + 1
    scores = model.log_prob(whole, lengths, *given).double().sum(1).tolist()
    cut = [tuple(row[:n]) for row, n in zip(whole.tolist(), lengths.tolist(), strict=True)]
    return dict(zip(cut, scores, strict=True))
