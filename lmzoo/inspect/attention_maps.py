r"""What each token looked at: the weights of a sentence's attention, layer by layer, head by head.

    weight[l, h, i, j] = α_ij of head h in layer l,   Σ_j α_ij = 1

A decoder looks back at the words that it has read, i at j <= i. A row that is given a
source looks at that: i is there the word that is predicted, as α decides what it is made of.

S0 (DLM40), S3 (its alignments); zoo.md 2, 4.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.inspect.latent_values import numbered
from lmzoo.models.attention.transformer_decoder import TransformerDecoder
from lmzoo.models.seq2seq.seq2seq_dot_attention import Seq2SeqDotAttention


@dataclass(frozen=True)
class Maps:
    """Axes of `weight`: layers, heads, tokens that look, tokens that are looked at."""

    axes: tuple[str, str]
    """What the tokens of the last two are."""
    looking: tuple[str, ...]
    looked_at: tuple[str, ...]
    weight: Float[Tensor, "layers heads i j"]


def has_maps(model: LanguageModel) -> bool:
    """Whether the attention of this model can be laid along the words of a sentence."""
    return isinstance(model, TransformerDecoder | Seq2SeqDotAttention)


@torch.no_grad()
def maps(
    model: LanguageModel,
    ids: Sequence[int],
    tokens: Sequence[str],
    given: tuple[Tensor, ...] = (),
    source: Sequence[str] = (),
) -> Maps:
    """The maps of one sentence, given as ids and as text, `<start>` first, and of its source."""
    was_training, row = model.training, torch.tensor([list(ids[:-1])])
    model.eval()
    if isinstance(model, Seq2SeqDotAttention):
        weight = model.attention_map(row, *given)[None]
        axes, looking = ("predicted token", "source token"), numbered(tokens[1:], start=1)
        looked_at = numbered(source, start=1)
    else:
        assert isinstance(model, TransformerDecoder), "see `has_maps`"
        weight = model.attention_maps(row)[:, 0]
        axes, looking = ("token that looks", "token looked at"), numbered(tokens[:-1])
        looked_at = looking
    model.train(was_training)
    return Maps(axes, looking, looked_at, weight)
