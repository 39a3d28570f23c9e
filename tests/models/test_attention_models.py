"""Attention models against torch and loops; which earlier tokens a prediction depends on."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.base.errors import UserError
from lmzoo.blocks.attention_block import Activation, NormPosition
from lmzoo.blocks.positions import sinusoids
from lmzoo.contract import LanguageModel
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.tiny import log_prob
from lmzoo.models.modern_decoder import Cut, ModernDecoder
from tests.blocks.test_attention_block import as_layer, randomise_norms
from tests.cases import cases, rows
from tests.cells.test_layers import PARTS
from tests.cells.test_layers import by_hand as attended
from tests.models.equivalence import LENGTH, assert_same_model, copy_weights, lag_dependence, small
from tests.tiny import (
    CLOSE,
    assert_equal_double,
    assert_equal_single,
    every_sequence,
    sources,
    tiny,
)

DECODERS = [
    "gpt",
    "gpt_mixture",
    "transformer_decoder",
    "transformer_decoder_preln",
    "qk_norm_attention",
    "hard_attention",
]
"""The rows of the model `transformer_decoder`."""


def wide(name: str, **fields: object) -> nn.Module:
    """Return a small model with the width that the layer tests use."""
    return small(name, width=8, **fields)


@pytest.mark.parametrize("name", ["gpt", "transformer_decoder", "transformer_decoder_preln"])
def test_scores_equal_the_pytorch_encoder_with_a_causal_mask(name):
    model = wide(name)
    pre = model.config.norm is NormPosition.PRE
    layers = [as_layer(block, model.config.activation) for block in model.blocks]
    tokens, lengths = every_sequence(model.task)
    x = model.place(model.embedding(tokens[:, :-1]))
    hidden = nn.Transformer.generate_square_subsequent_mask(LENGTH - 1)
    for layer in layers:
        x = layer(x, src_mask=hidden, is_causal=True)
    y = x
    if pre:
        y = model.final_norm(x)
    if model.config.tied:
        table = model.embedding
    else:
        table = model.output
    expected = torch.log_softmax(y @ table.weight.T, dim=-1)
    expected = expected.gather(2, tokens[:, 1:, None])[..., 0].detach()
    assert_equal_single(log_prob(model, tokens, lengths)[:, 1:], expected)


@pytest.mark.parametrize("where", ["token vectors", "weights", "residuals", "nowhere"])
def test_dropout_acts_in_three_places_during_training(where):
    model = wide("gpt", spread=0.3, dropout=0.3)
    keep = {"token vectors": [model.dropout], "residuals": [b.dropout for b in model.blocks]}
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module not in keep.get(where, []):
            module.p = 0.0
    for block in model.blocks:
        block.attention.dropout *= where == "weights"
    tokens, lengths = every_sequence(model.task)
    draws = [log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1)]
    assert draws[0].equal(draws[1]) is (where == "nowhere")


def test_a_window_that_covers_everything_changes_nothing_and_has_the_stated_state():
    wide = {"width": 8, "spread": 0.3}
    local, dense = (small("local_attention", window=w, **wide) for w in (LENGTH, 0))
    copy_weights(dense, local, *dict(local.named_parameters()))
    assert_same_model(dense, local)
    assert dense.state_size is None
    model = small("local_attention", window=3, **wide).eval()
    state = model.begin(1)
    for token in (1, 0, 2, 0, 1, 2):
        _, state = model.advance(state, torch.tensor([token]))
    assert sum(tensor.numel() for layer in state[1] for tensor in layer) == model.state_size
    assert "window" not in to_dict(zoo.config("transformer_decoder"))


@torch.no_grad()
def test_star_features_follow_the_equation():
    """Compare with a loop over positions that lists every memory."""
    model = tiny("star_transformer_causal", length=7, width=16, layers=2, relay=True).eval()
    x = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0))

    def update(part: nn.Module, query: Tensor, *memory: Tensor) -> Tensor:
        keys = torch.stack(memory)[None]
        return part.norm(part.attention(query[None, None], keys).relu())[0, 0]

    e = list(x[0])
    h = e
    r = [torch.stack(e[: i + 1]).mean(0) for i in range(4)]
    for layer in range(2):
        left = [h[i - 1 : i] if i else [] for i in range(4)]
        satellite = model.satellites[layer]
        h = [update(satellite, h[i], *left[i], h[i], e[i], r[i]) for i in range(4)]
        if layer == 0:
            r = [update(model.relays[0], r[i], r[i], *h[: i + 1]) for i in range(4)]
    assert_equal_single(model.encode(x)[0], torch.stack(h))


@pytest.mark.parametrize("points", [0, 3])
def test_spread_sets_the_standard_deviation_of_all_weights(points):
    model = tiny("set_transformer_causal", width=64, points=points, spread=0.02)
    default = tiny("set_transformer_causal", width=64, points=points)
    drawn = [(name, w) for name, w in model.blocks.named_parameters() if w.dim() == 2]
    assert len(drawn) >= 2 * 6
    for name, weight in drawn:
        assert weight.std().item() == pytest.approx(0.02, rel=0.15), name
        assert default.blocks.get_parameter(name).std() > 0.03
    for name, bias in model.blocks.named_parameters():
        assert "norm" in name or bias.dim() == 2 or not bias.any(), name


SIZES = {"width": 8, "heads": 4, "groups": 2, "window": 2, "layers": 2}
MODERN_CUTS = [[], *([cut.value] for cut in Cut), [cut.value for cut in Cut]]


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
    ("cuts", "memory"), [*((c, []) for c in MODERN_CUTS), *(([], m) for m in PARTS)], ids=str
)
def test_scores_are_those_of_the_equations(cuts, memory):
    fields = {**SIZES, "cuts": cuts, "memory": memory}
    model = tiny("modern_decoder", vocab=6, length=7, **fields).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.5)
        tokens = torch.tensor([1, 4, 5, 4, 5, 5, 4])
        logits = by_hand(model, tokens[:-1])
        expected = torch.log_softmax(logits, dim=-1).gather(1, tokens[1:, None])[:, 0]
        scores = model.log_prob(tokens[None], torch.tensor([7]))[0, 1:]
    assert_equal_double(scores, expected)


def test_groups_that_do_not_divide_the_heads_are_an_error():
    with pytest.raises(UserError, match="groups=3 must divide heads=4"):
        small("modern_decoder", **{**SIZES, "groups": 3})


E = 8
"""Width of the layers that the shared helper functions build."""


def as_transformer(model: LanguageModel, place: NormPosition) -> nn.Transformer:
    """Return PyTorch's model with our weights; a final LayerNorm exists with `pre` only."""
    body = model.body
    pre = place is NormPosition.PRE
    theirs = nn.Transformer(
        E, 2, len(body.encoder), len(body.decoder), 4 * E, batch_first=True, norm_first=pre
    )
    theirs.encoder.layers = nn.ModuleList(as_layer(b, Activation.RELU) for b in body.encoder)
    theirs.decoder.layers = nn.ModuleList(as_layer(b, Activation.RELU) for b in body.decoder)
    theirs.encoder.norm = body.encoder_norm
    theirs.decoder.norm = body.decoder_norm
    return theirs.eval()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("place", list(NormPosition))
def test_scores_equal_the_pytorch_transformer(place):
    model = randomise_norms(small("transformer_encdec", width=E, norm=place)).eval()
    theirs = as_transformer(model, place)
    tokens, lengths = every_sequence(model.task)
    source, n = sources(model.task, len(tokens))
    x = model.source_embedding(source) * E**0.5
    u = model.embedding(tokens[:, :-1]) * E**0.5
    beyond = torch.arange(source.shape[1]) >= n[:, None]
    y = theirs(
        x + sinusoids(source.shape[1], E).float(),
        u + sinusoids(u.shape[1], E).float(),
        tgt_mask=~causal_mask(u.shape[1]),
        src_key_padding_mask=beyond,
        memory_key_padding_mask=beyond,
    )
    dense = torch.log_softmax(y @ model.embedding.weight.T, dim=-1)
    expected = dense.gather(2, tokens[:, 1:, None])[..., 0].detach()
    assert_equal_single(log_prob(model, tokens, lengths, source, n)[:, 1:], expected)


WIDE = {"width": 8, "spread": 0.3}
LIMITED: list[tuple[str, dict[str, Any], int]] = rows("models/cases.toml", "reach")
"""Row, fields, and how many tokens back the prediction reads."""
# Hard attention ignores tokens that no head selects.
LIMITED += [(name, WIDE, 3) for name in DECODERS if name != "hard_attention"]


@pytest.mark.parametrize(("name", "fields", "reach"), LIMITED, ids=str)
def test_a_prediction_depends_on_the_tokens_within_reach(name, fields, reach):
    assert lag_dependence(small(name, **fields)) == [back <= reach for back in (1, 2, 3)]


@cases("models/cases.toml", "ordered", "name, fields, matters")
def test_the_order_of_earlier_tokens_matters_if_positions_are_known(name, fields, matters):
    model = small(name, **fields).eval()
    prefix = every_sequence(model.task)[0][:, : LENGTH - 1]
    moved = prefix[:, [0, 2, 1, 3]]  # the last is the query
    with torch.no_grad():
        change = (model.next_log_prob(moved) - model.next_log_prob(prefix)).abs().max()
    assert change > 1e-3 if matters else change < CLOSE
