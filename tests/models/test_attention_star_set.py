"""Causal Star-Transformer and Set Transformer; the original models are not causal."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo.contract import LanguageModel
from lmzoo.laws.density import law_causal
from lmzoo.models.attention.set_transformer_causal import SetTransformerCausal
from lmzoo.models.attention.star_transformer_causal import StarTransformerCausal
from tests.laws.support import assert_close, next_log_prob
from tests.tiny import CLOSE, tiny

LENGTH = 7


def field(model: LanguageModel) -> list[bool]:
    """Return whether the prediction depends on the token 1, 2, .. steps back."""
    tokens = torch.randint(3, (40, LENGTH - 1), generator=torch.Generator().manual_seed(0))
    before, depends = next_log_prob(model, tokens), []
    for t in reversed(range(1, LENGTH - 1)):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % 3
        depends.append(bool((next_log_prob(model, changed) - before).abs().max() > 1e-4))
    return depends


def star(layers: int, *, relay: bool) -> LanguageModel:
    return tiny("star_transformer_causal", length=LENGTH, width=16, layers=layers, relay=relay)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_star_without_relays_reads_one_more_token_than_layers(layers: int) -> None:
    steps_back = range(1, LENGTH - 1)
    assert field(star(layers, relay=False)) == [back <= layers + 1 for back in steps_back]


@pytest.mark.parametrize("layers", [1, 2])
def test_star_with_relays_reads_all_earlier_tokens(layers: int) -> None:
    assert all(field(star(layers, relay=True)))


def test_first_relay_is_the_mean_of_the_prefix() -> None:
    model, x = star(1, relay=True), torch.randn(2, 5, 16)
    means = torch.stack([x[:, : t + 1].mean(1) for t in range(5)], dim=1)
    assert_close(model.first_relay(x), means, CLOSE, "relay")


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


class OriginalStar(StarTransformerCausal):
    """The published model: a ring of neighbours on both sides, one relay per sentence."""

    def first_relay(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True).expand_as(x)

    def neighbours(self, h: Tensor) -> tuple[list[Tensor], Tensor]:
        mask = torch.ones(h.shape[1], 1, 3, dtype=torch.bool)
        return [h.roll(1, 1), h, h.roll(-1, 1)], mask

    def relay_mask(self, h: Tensor) -> Tensor:
        return torch.ones(h.shape[1], h.shape[1], dtype=torch.bool)


class OriginalSet(SetTransformerCausal):
    """The published model: the inducing points summarise the whole sentence."""

    def encode(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, causal=False)
        return x


@pytest.mark.parametrize(
    ("original", "name"),
    [(OriginalStar, "star_transformer_causal"), (OriginalSet, "set_transformer_causal")],
)
def test_original_models_are_not_causal(original: type, name: str) -> None:
    model = tiny(name)
    model.__class__ = original
    with pytest.raises(AssertionError, match="leak: "):
        law_causal(model)


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
