"""From token strings to padded id tensors."""

from collections.abc import Sequence
from itertools import chain

import torch

from lmzoo.contract import END, PAD, START
from lmzoo.data.corpus import Sequences
from lmzoo.data.vocabulary import Vocabulary


def encode(
    sentences: Sequence[Sequence[str]],
    vocabulary: Vocabulary,
    *,
    length: int,
    end: bool,
    cut_ends: bool = True,
) -> Sequences:
    """`<start>`, the tokens, `<end>` if asked, padded to `length`.

    A sentence too long is cut so that everything fits. `<end>` follows the cut as well,
    as in S0 (zoo.md 1.9); with `cut_ends=False` it stands only where a sentence is whole.
    """
    rows = []
    for sentence in sentences:
        ends = end and (cut_ends or len(sentence) <= length - 2)
        ids = vocabulary.encode(sentence[: length - 1 - ends])
        rows.append([START, *ids, END] if ends else [START, *ids])
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    tokens = torch.full((len(rows), length), PAD, dtype=torch.int64)
    # One flat assignment in row-major order: a tensor per row would take most of the time.
    filled = torch.arange(length) < lengths[:, None]
    tokens[filled] = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.int64)
    return Sequences(tokens, lengths)
