"""Set attention ignores order; its causal form equals the plain form on every prefix."""

import torch
from torch import Tensor

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import AttentionBlock
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.support import assert_close
from lmzoo.models.set_transformer_causal import InducedAttention
from tests.blocks.test_attention import E, T, inputs
from tests.tiny import CLOSE

X = inputs(3, T, E)
CONFIG = Attention.Config(heads=2)


def induced(points: int = 2) -> InducedAttention:
    torch.manual_seed(0)
    return InducedAttention(E, points, CONFIG).eval()


def block() -> AttentionBlock:
    torch.manual_seed(0)
    return AttentionBlock(E, CONFIG).eval()


def test_the_causal_form_equals_the_plain_form_on_every_prefix() -> None:
    causal, masked = induced()(X, causal=True), block()(X, mask=causal_mask(T))
    for t in range(1, T + 1):
        plain = induced()(X[:, :t], causal=False)
        assert_close(causal[:, t - 1], plain[:, -1], CLOSE, f"ISAB of {t}")
        assert_close(masked[:, t - 1], block()(X[:, :t])[:, -1], CLOSE, f"SAB of {t}")


def running_softmax(attention: Attention, points: Tensor, x: Tensor) -> Tensor:
    """Return Σ_j exp(a_j) v_j / Σ_j exp(a_j) over every prefix, (B, T, m, E)."""
    weights = attention.logits(points.expand(len(x), -1, -1), x).exp()
    values = attention.value(x).unflatten(-1, (attention.config.heads, -1)).transpose(1, 2)
    numerator = (weights[..., None] * values[:, :, None]).cumsum(3)
    means = numerator / weights.cumsum(3)[..., None]  # B heads m T d
    return attention.output(means.permute(0, 3, 2, 1, 4).flatten(3))


def test_prefix_summaries_are_a_running_softmax() -> None:
    isab = induced()
    points, gather = isab.points.vectors, isab.gather
    h = gather.attention_norm(points + running_softmax(gather.attention, points, X))
    expected = gather.feed_forward_norm(h + gather.feed_forward(h))
    assert_close(isab.prefix_summaries(X), expected, CLOSE, "summaries")
