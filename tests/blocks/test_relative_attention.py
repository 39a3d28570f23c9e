"""Relative attention equals its definition, written with loops in float64 (Shaw et al. 2018)."""

import math

import pytest
import torch
from torch import Tensor

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.relative_attention import Relative, RelativeAttention
from lmzoo.functional.softmax_attention import sparse_causal_mask
from tests.laws.support import assert_close
from tests.tiny import FINE

HEADS, SIZE, LENGTH, REACH = 2, 3, 6, 2
PARTS = [Relative.KEYS, Relative.VALUES, Relative.BOTH]


def build(parts: Relative, **fields: object) -> RelativeAttention:
    torch.manual_seed(0)
    config = Attention.Config(heads=HEADS, **fields)
    return RelativeAttention(config, HEADS * SIZE, parts=parts, reach=REACH).double()


def inputs() -> Tensor:
    return torch.randn(1, LENGTH, HEADS * SIZE, dtype=torch.float64, generator=torch.Generator())


def reference(attention: RelativeAttention, x: Tensor) -> Tensor:
    """Return the output (T, E) of one sequence (T, E), one number after another."""
    q, k, v = attention.query(x), attention.key(x), attention.value(x)
    a, b = attention.key_distances, attention.value_distances
    outputs = []
    for i in range(len(x)):
        heads = []
        for h in range(HEADS):
            part = slice(h * SIZE, (h + 1) * SIZE)
            logits, values = [], []
            for j in range(i + 1):
                distance = min(i - j, REACH)
                key = k[j, part] + (0 if a is None else a.weight[distance])
                values.append(v[j, part] + (0 if b is None else b.weight[distance]))
                logits.append(q[i, part] @ key / math.sqrt(SIZE))
            weights = torch.stack(logits).softmax(0)
            heads.append((weights[:, None] * torch.stack(values)).sum(0))
        outputs.append(attention.output(torch.cat(heads)))
    return torch.stack(outputs)


@torch.no_grad()
@pytest.mark.parametrize("parts", PARTS)
def test_it_computes_its_definition(parts: Relative) -> None:
    attention, x = build(parts), inputs()
    actual = attention(x, x, sparse_causal_mask(LENGTH))
    assert_close(actual[0], reference(attention, x[0]), FINE, "output")


@pytest.mark.parametrize(("window", "stride"), [(0, 0), (1, 0), (3, 0), (2, 3), (1, 2), (9, 4)])
def test_a_mask_shows_the_window_and_every_strided_position(window: int, stride: int) -> None:
    mask = sparse_causal_mask(7, window, stride)
    for i in range(7):
        for j in range(7):
            near = not window or i - window < j
            far = stride > 0 and (i - j) % stride == 0
            assert mask[i, j].item() is (j <= i and (near or far))
