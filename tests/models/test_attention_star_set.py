"""Causal Star-Transformer and Set Transformer; the original models are not causal."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo.contract import LanguageModel
from lmzoo.laws.support import assert_close
from tests.tiny import CLOSE, tiny

LENGTH = 7


def star(layers: int, *, relay: bool) -> LanguageModel:
    return tiny("star_transformer_causal", length=LENGTH, width=16, layers=layers, relay=relay)


@torch.no_grad()
def test_star_features_follow_the_equation() -> None:
    """Compare with a loop over positions that lists every memory."""
    model = star(2, relay=True).eval()
    x = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0))

    def update(part: nn.Module, query: Tensor, *memory: Tensor) -> Tensor:
        keys = torch.stack(memory)[None]
        return part.norm(part.attention(query[None, None], keys).relu())[0, 0]

    e = list(x[0])
    h, r = e, [torch.stack(e[: i + 1]).mean(0) for i in range(4)]
    for layer in range(2):
        left = [h[i - 1 : i] if i else [] for i in range(4)]
        satellite = model.satellites[layer]
        h = [update(satellite, h[i], *left[i], h[i], e[i], r[i]) for i in range(4)]
        if layer == 0:
            r = [update(model.relays[0], r[i], r[i], *h[: i + 1]) for i in range(4)]
    assert_close(model.encode(x)[0], torch.stack(h), CLOSE, "satellites")


@pytest.mark.parametrize("points", [0, 3])
def test_spread_sets_the_standard_deviation_of_all_weights(points: int) -> None:
    model = tiny("set_transformer_causal", width=64, points=points, spread=0.02)
    default = tiny("set_transformer_causal", width=64, points=points)
    drawn = [(name, w) for name, w in model.blocks.named_parameters() if w.dim() == 2]
    assert len(drawn) >= 2 * 6
    for name, weight in drawn:
        assert weight.std().item() == pytest.approx(0.02, rel=0.15), name
        assert default.blocks.get_parameter(name).std() > 0.03
    for name, bias in model.blocks.named_parameters():
        assert "norm" in name or bias.dim() == 2 or not bias.any(), name
