"""The modern decoder: its equations position by position in float64, and what its cuts remove."""

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.laws.support import assert_close
from lmzoo.models.modern_decoder import Cut, ModernDecoder
from tests.cells.test_attention import PARTS
from tests.cells.test_attention import by_hand as attended
from tests.models.equivalence import small
from tests.tiny import FINE, tiny

SIZES = {"width": 8, "heads": 4, "groups": 2, "window": 2, "layers": 2}
VARIANTS = [[], *([cut.value] for cut in Cut), [cut.value for cut in Cut]]


def by_hand(model: ModernDecoder, tokens: Tensor) -> Tensor:
    """Return the logits after each token of one sequence, from the equations."""
    x = model.embedding.weight[tokens]
    for layer in model.blocks:
        x = torch.stack([position(layer, x, t) for t in range(len(tokens))])
    return normed(model.norm, x) @ model.embedding.weight.T


def position(layer, x: Tensor, t: int) -> Tensor:
    """Return y_t of a layer."""
    cuts = layer.cuts
    n = normed(layer.norm, x)
    u = n
    if Cut.CONVOLUTION not in cuts:
        u = torch.zeros_like(n)
        for s in range(len(n)):
            for back in range(min(4, s + 1)):
                u[s] += layer.conv[:, 3 - back] * n[s - back]
    h = x[t] + attended(layer, u, t)
    if Cut.FEED_FORWARD in cuts:
        return h
    n = normed(layer.forward_norm, h)
    y = layer.gate.weight @ n
    y = y * torch.sigmoid(y)
    return h + layer.down.weight @ (y if Cut.GATE in cuts else y * (layer.up.weight @ n))


def normed(norm, x: Tensor) -> Tensor:
    if not hasattr(norm, "weight"):
        return x
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight


@pytest.mark.parametrize(
    ("cuts", "memory"), [*((c, []) for c in VARIANTS), *(([], m) for m in PARTS)], ids=str
)
def test_scores_are_those_of_the_equations(cuts: list[str], memory: list[str]) -> None:
    fields = {**SIZES, "cuts": cuts, "memory": memory}
    model = tiny("modern_decoder", vocab=6, length=7, **fields).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.5)
        tokens = torch.tensor([1, 4, 5, 4, 5, 5, 4])
        logits = by_hand(model, tokens[:-1])
        expected = torch.log_softmax(logits, dim=-1).gather(1, tokens[1:, None])[:, 0]
        scores = model.log_prob(tokens[None], torch.tensor([7]))[0, 1:]
    assert_close(scores, expected, FINE, "scores")


def test_groups_that_do_not_divide_the_heads_are_an_error() -> None:
    with pytest.raises(UserError, match="groups=3 must divide heads=4"):
        small("modern_decoder", **{**SIZES, "groups": 3})
