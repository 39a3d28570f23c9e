r"""What token embeddings have learned: norms, neighbours and analogies.

    norms       corr( log n_v, ‖e(v)‖ ) over the tokens of the training split, n_v their counts
    neighbours  the tokens with the largest cos( e(v), e(w) )
    a : b = c   argmax_v cos( e(v), ê(b) − ê(a) + ê(c) ),  v not a, b or c;  ê = e / ‖e‖

Where nothing normalises the embeddings, a tied softmax stores the frequency of a token in the
length of its vector, ‖Emb_v‖, and a context its certainty in the length of y.

Mikolov, Yih & Zweig 2013 (analogies); Schakel & Wilson 2015 (arXiv:1508.02297, norms). Source: S0,
S3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.types import Embeddings


@dataclass(frozen=True)
class NormBand:
    """Tokens of similar frequency."""

    tokens: int
    most: int
    """Largest count of a token."""
    least: int
    mean: float
    """Mean of the norms."""
    spread: float
    """Standard deviation of the norms."""


def token_vectors(model: LanguageModel) -> Embeddings:
    """Return the table of input embeddings.

    Raises:
        UserError: The model has none.
    """
    for module in model.modules():
        if isinstance(module, EmbeddingTable) and module.num_embeddings == model.task.vocab:
            return module.weight.detach()
    raise UserError(f"{model.name} has no table of token embeddings")


def counts_of(corpus: Corpus) -> Int[Tensor, "V"]:
    """Return how often each token occurs in the training split, `<start>` not counted."""
    tokens, lengths = corpus.train.tokens, corpus.train.lengths
    t = torch.arange(tokens.shape[1])
    scored = (t >= 1) & (t < lengths[:, None])
    return torch.bincount(tokens[scored], minlength=len(corpus.vocabulary))


def norm_bands(
    vectors: Embeddings, counts: Int[Tensor, "V"], bands: int = 5
) -> tuple[list[NormBand], float]:
    """Return the norms by bands of frequency, and the correlation of norm and log count.

    Bands have the same number of tokens, the most frequent first. Tokens without a count are left
    out; the correlation is NaN if all norms or all counts are equal.
    """
    order = counts.argsort(descending=True, stable=True)
    order = order[counts[order] > 0]
    norms, seen = vectors[order].norm(dim=1).double(), counts[order]
    found = [
        NormBand(
            len(part), int(n.max()), int(n.min()), part.mean().item(), part.std(correction=0).item()
        )
        for part, n in zip(norms.tensor_split(bands), seen.tensor_split(bands), strict=True)
        if len(part)
    ]
    pair = torch.stack([seen.double().log(), norms])
    return found, torch.corrcoef(pair)[0, 1].item()


def nearest(
    vectors: Embeddings, query: Float[Tensor, "E"], exclude: Sequence[int], count: int
) -> list[tuple[int, float]]:
    """Return the ids and cosines of the `count` vectors nearest to the query, best first."""
    unit = torch.nn.functional.normalize(vectors, dim=1)
    cosine = unit @ torch.nn.functional.normalize(query, dim=0)
    cosine[list(exclude)] = -torch.inf
    values, ids = cosine.topk(min(count, len(vectors) - len(set(exclude))))
    return list(zip(ids.tolist(), values.tolist(), strict=True))


def neighbours(vectors: Embeddings, word: int, count: int = 5) -> list[tuple[int, float]]:
    """Return the tokens with the most similar embeddings."""
    return nearest(vectors, vectors[word], [word], count)


def analogy(vectors: Embeddings, a: int, b: int, c: int, count: int = 5) -> list[tuple[int, float]]:
    """Return the tokens that are to c as b is to a, best first."""
    unit = torch.nn.functional.normalize(vectors, dim=1)
    return nearest(vectors, unit[b] - unit[a] + unit[c], [a, b, c], count)
