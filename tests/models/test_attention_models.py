"""Attention models against torch and loops; which earlier tokens a prediction depends on."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmzoo import zoo
from lmzoo.base.config import to_dict
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
    tokens, lengths = every_sequence(model.task)
    y = model.place(model.embedding(tokens[:, :-1]))
    hidden = nn.Transformer.generate_square_subsequent_mask(LENGTH - 1)
    for block in model.blocks:
        layer = as_layer(block, model.config.activation)
        y = layer(y, src_mask=hidden, is_causal=True)
    if model.config.norm is NormPosition.PRE:
        y = model.final_norm(y)
    table = model.output
    if model.config.tied:
        table = model.embedding
    logits = y @ table.weight.T
    expected = logits.log_softmax(-1).gather(2, tokens[:, 1:, None])
    assert_equal_single(log_prob(model, tokens, lengths)[:, 1:], expected[..., 0])


@pytest.mark.parametrize("where", ["token vectors", "weights", "residuals", "nowhere"])
def test_dropout_acts_in_three_places_during_training(where):
    model = wide("gpt", spread=0.3, dropout=0.3)
    keep = {"token vectors": [model.dropout], "residuals": [b.dropout for b in model.blocks]}
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module not in keep.get(where, []):
            module.p = 0.0
    if where != "weights":
        for block in model.blocks:
            block.attention.dropout = 0.0
    tokens, lengths = every_sequence(model.task)
    first = log_prob(model, tokens, lengths, training=True, noise=0)
    second = log_prob(model, tokens, lengths, training=True, noise=1)
    assert first.equal(second) is (where == "nowhere")


def local_attention(window: int) -> LanguageModel:
    return wide("local_attention", spread=0.3, window=window)


def test_a_window_that_covers_everything_changes_nothing():
    # Names of the weights do not depend on the window.
    local = local_attention(LENGTH)
    dense = local_attention(0)
    copy_weights(dense, local, *dict(local.named_parameters()))
    assert_same_model(dense, local)
    assert "window" not in to_dict(zoo.config("transformer_decoder"))


def test_a_state_with_a_window_has_the_stated_size():
    model = local_attention(3).eval()
    state = model.begin(1)
    for token in (1, 0, 2, 0, 1, 2):
        _, state = model.advance(state, torch.tensor([token]))
    _, layers = state
    size = sum(tensor.numel() for layer in layers for tensor in layer)
    assert size == model.state_size
    assert local_attention(0).state_size is None


@torch.no_grad()
def test_star_features_follow_the_equation():
    """Compare with a loop over positions that lists every memory."""
    model = tiny("star_transformer_causal", length=7, width=16, layers=2, relay=True).eval()
    x = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0))
    e = list(x[0])
    h = e
    relays = [torch.stack(e[: i + 1]).mean(0) for i in range(4)]
    for layer in range(2):
        satellites = []
        for i in range(4):
            # The token before, itself, its embedding and its relay.
            memory = h[max(0, i - 1) : i + 1] + [e[i], relays[i]]
            satellites.append(star_update(model.satellites[layer], h[i], memory))
        h = satellites
        # What the last relays become is read by nothing.
        if layer == 0:
            for i in range(4):
                memory = [relays[i]] + h[: i + 1]
                relays[i] = star_update(model.relays[0], relays[i], memory)
    assert_equal_single(model.encode(x)[0], torch.stack(h))


def star_update(part: nn.Module, query: Tensor, memory: list[Tensor]) -> Tensor:
    read = part.attention(query[None, None], torch.stack(memory)[None])
    return part.norm(read.relu())[0, 0]


@pytest.mark.parametrize("points", [0, 3])
def test_spread_sets_the_standard_deviation_of_all_weights(points):
    model = tiny("set_transformer_causal", width=64, points=points, spread=0.02)
    default = tiny("set_transformer_causal", width=64, points=points)
    matrices = {name for name, w in model.blocks.named_parameters() if w.dim() == 2}
    assert len(matrices) >= 2 * 6
    for name in matrices:
        drawn = model.blocks.get_parameter(name)
        usual = default.blocks.get_parameter(name)
        # The matrices have thousands of numbers, whose deviation is known to a few percent.
        assert drawn.std().item() == pytest.approx(0.02, rel=0.15), name
        assert usual.std() > 0.03


def test_biases_start_at_zero():
    model = tiny("set_transformer_causal", width=64, spread=0.02)
    for name, weight in model.blocks.named_parameters():
        if weight.dim() == 1 and "norm" not in name:
            assert not weight.any(), name


SIZES = {"width": 8, "heads": 4, "groups": 2, "window": 2, "layers": 2}
EVERY_CUT = [cut.value for cut in Cut]
MODERN: list[dict[str, Any]] = [{}, {"cuts": EVERY_CUT}]
MODERN += [{"cuts": [cut]} for cut in EVERY_CUT]
MODERN += [{"memory": memory} for memory in PARTS]


def by_hand(model: ModernDecoder, tokens: Tensor) -> Tensor:
    """Return the logits after each token of one sequence, from the equations."""
    x = model.embedding.weight[tokens]
    for layer in model.blocks:
        x = torch.stack([position(layer, x, t) for t in range(len(tokens))])
    return normed(model.norm, x) @ model.embedding.weight.T


def position(layer, x: Tensor, t: int) -> Tensor:
    """Return y_t of a layer."""
    cuts = layer.cuts
    u = normed(layer.norm, x)
    if Cut.CONVOLUTION not in cuts:
        padded = torch.cat([torch.zeros(3, x.shape[1], dtype=x.dtype), u])
        taps = layer.conv.T
        u = torch.stack([(taps * padded[s : s + 4]).sum(0) for s in range(len(x))])
    h = x[t] + attended(layer, u, t)
    if Cut.FEED_FORWARD in cuts:
        return h
    n = normed(layer.forward_norm, h)
    y = nn.functional.silu(layer.gate(n))
    if Cut.GATE not in cuts:
        y = y * layer.up(n)
    return h + layer.down(y)


def normed(norm, x: Tensor) -> Tensor:
    if not hasattr(norm, "weight"):
        return x
    return nn.functional.rms_norm(x, x.shape[-1:], norm.weight, 1e-5)


@pytest.mark.parametrize("fields", MODERN, ids=str)
def test_scores_are_those_of_the_equations(fields):
    model = tiny("modern_decoder", vocab=6, length=7, **SIZES, **fields).double().eval()
    tokens = torch.tensor([1, 4, 5, 4, 5, 5, 4])
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.5)
        logits = by_hand(model, tokens[:-1])
        scores = model.log_prob(tokens[None], torch.tensor([7]))[0, 1:]
    expected = logits.log_softmax(-1).gather(1, tokens[1:, None])
    assert_equal_double(scores, expected[:, 0])


E = 8
"""Width of the layers that the shared helper functions build."""


def as_transformer(model: LanguageModel, place: NormPosition) -> nn.Transformer:
    """Return PyTorch's model with our weights; a final LayerNorm exists with `pre` only."""
    body = model.body
    pre = place is NormPosition.PRE
    depth = len(body.encoder)
    theirs = nn.Transformer(E, 2, depth, depth, 4 * E, batch_first=True, norm_first=pre)
    encoder = [as_layer(block, Activation.RELU) for block in body.encoder]
    decoder = [as_layer(block, Activation.RELU) for block in body.decoder]
    theirs.encoder.layers = nn.ModuleList(encoder)
    theirs.decoder.layers = nn.ModuleList(decoder)
    theirs.encoder.norm = body.encoder_norm
    theirs.decoder.norm = body.decoder_norm
    return theirs.eval()


def placed(embedded: Tensor) -> Tensor:
    """Return scaled vectors plus those of the positions, as the first transformer has them."""
    positions = sinusoids(embedded.shape[1], E).float()
    return embedded * E**0.5 + positions


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("place", list(NormPosition))
def test_scores_equal_the_pytorch_transformer(place):
    model = randomise_norms(small("transformer_encdec", width=E, norm=place)).eval()
    theirs = as_transformer(model, place)
    tokens, lengths = every_sequence(model.task)
    source, n = sources(model.task, len(tokens))
    beyond = torch.arange(source.shape[1]) >= n[:, None]
    read = tokens[:, :-1]
    y = theirs(
        placed(model.source_embedding(source)),
        placed(model.embedding(read)),
        tgt_mask=~causal_mask(read.shape[1]),
        src_key_padding_mask=beyond,
        memory_key_padding_mask=beyond,
    )
    logits = y @ model.embedding.weight.T
    expected = logits.log_softmax(-1).gather(2, tokens[:, 1:, None])
    actual = log_prob(model, tokens, lengths, source, n)
    assert_equal_single(actual[:, 1:], expected[..., 0])


WIDE = {"width": 8, "spread": 0.3}
LIMITED: list[tuple[str, dict[str, Any], int]] = rows("models/cases.toml", "reach")
"""Row, fields, and how many tokens back the prediction reads."""
# Hard attention ignores tokens that no head selects.
LIMITED += [(name, WIDE, 3) for name in DECODERS if name != "hard_attention"]


@pytest.mark.parametrize(("name", "fields", "reach"), LIMITED, ids=str)
def test_a_prediction_depends_on_the_tokens_within_reach(name, fields, reach):
    expected = [back <= reach for back in (1, 2, 3)]
    assert lag_dependence(small(name, **fields)) == expected


@cases("models/cases.toml", "ordered", "name, fields, matters")
def test_the_order_of_earlier_tokens_matters_if_positions_are_known(name, fields, matters):
    model = small(name, **fields).eval()
    prefix = every_sequence(model.task)[0][:, : LENGTH - 1]
    # Two tokens in the middle change places.
    moved = prefix[:, [0, 2, 1, 3]]  # the last is the query
    with torch.no_grad():
        before = model.next_log_prob(prefix)
        after = model.next_log_prob(moved)
    change = (after - before).abs().max()
    if matters:
        assert change > 1e-3
    else:
        assert change < CLOSE
