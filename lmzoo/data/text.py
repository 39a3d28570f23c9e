"""Text to token ids, as a corpus writes its sequences."""

import torch
from torch import Tensor

from lmzoo.base.errors import UserError, near
from lmzoo.contract import END, START, UNKNOWN
from lmzoo.data.corpus import Corpus
from lmzoo.data.vocabulary import SPECIALS


def encode_sentence(corpus: Corpus, text: str) -> tuple[Tensor, Tensor]:
    """Encode a text as one sequence: tokens (1, T) and lengths (1).

    Tokens are separated by blanks, or are characters if the corpus has characters. A token outside
    the vocabulary becomes `<unk>`.

    Raises:
        UserError: The text is empty or too long, or has an unknown token although the training
            split has no `<unk>`.
    """
    vocabulary = corpus.vocabulary
    tokens = vocabulary.split(text)
    if not tokens:
        raise UserError("the text is empty; give at least one token")
    has_unknown = bool((corpus.train.tokens == UNKNOWN).any())
    for token in tokens:
        if token not in vocabulary.ids and not has_unknown:
            hint = near(token, vocabulary.tokens[len(SPECIALS) :])
            raise UserError(
                f"{token!r} is not in the vocabulary of {corpus.name}, which has no <unk>{hint}"
            )
    ids = [START, *vocabulary.encode(tokens), *([END] if corpus.ends else [])]
    length = corpus.task.length
    if len(ids) > length:
        room = len(tokens) - len(ids) + length
        raise UserError(f"the text has {len(tokens)} tokens; {corpus.name} has room for {room}")
    return torch.tensor([ids]), torch.tensor([len(ids)])
