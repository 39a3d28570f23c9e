"""From token strings to padded id tensors."""

from collections.abc import Sequence

import torch

from lmzoo.contract import END, PAD, START
from lmzoo.data.corpus import Sequences
from lmzoo.data.vocabulary import Vocabulary


def encode(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, *, length: int, end: bool
) -> Sequences:
    """`<start>`, the tokens, `<end>` if asked, padded to `length`.

    A sentence too long is cut so that everything fits; `<end>` follows the cut as well,
    as in S0 (zoo.md 1.9).
    """
    room = length - 1 - end
    tokens = torch.full((len(sentences), length), PAD, dtype=torch.int64)
    lengths = torch.empty(len(sentences), dtype=torch.int64)
    for i, sentence in enumerate(sentences):
        ids = [START, *vocabulary.encode(sentence[:room]), *([END] if end else [])]
        tokens[i, : len(ids)] = torch.tensor(ids)
        lengths[i] = len(ids)
    return Sequences(tokens, lengths)
