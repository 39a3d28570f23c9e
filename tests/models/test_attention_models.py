"""Attention models against torch and loops; which earlier tokens a prediction depends on."""

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.blocks.attention_block import Activation, NormPosition
from lmzoo.blocks.positions import sinusoids
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.tiny import log_prob
from lmzoo.models.modern_decoder import Cut
from tests.blocks.test_attention_block import as_layer, randomise_norms
from tests.cases import cases, parametrize, rows
from tests.cells.test_layers import PARTS
from tests.cells.test_layers import by_hand as attended
from tests.models.equivalence import (
    LENGTH,
    assert_same_model,
    copy_weights,
    lag_dependence,
    small,
    token_scores,
)
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


def wide(name, **fields):
    """Return a small model with the width that the layer tests use."""
    return small(name, width=8, **fields)


LIKE_TORCH = ["gpt", "transformer_decoder", "transformer_decoder_preln"]


@parametrize("name", LIKE_TORCH)
def test_scores_equal_the_pytorch_encoder_with_a_causal_mask(name):
    model = wide(name)
    tokens, lengths = every_sequence(model.task)
    read = model.embedding(tokens[:, :-1])
    y = model.place(read)
    # torch hides what is −∞ there.
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
    expected = token_scores(logits, tokens[:, 1:])
    actual = log_prob(model, tokens, lengths)[:, 1:]
    assert_equal_single(actual, expected)


@parametrize("where", ["token vectors", "weights", "residuals", "nowhere"])
def test_dropout_acts_in_three_places_during_training(where):
    model = wide("gpt", spread=0.3, dropout=0.3)
    places = {"token vectors": [model.dropout]}
    places["residuals"] = [block.dropout for block in model.blocks]
    kept = places.get(where, [])
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module not in kept:
            module.p = 0.0
    # Of the weights of an attention, the rate is a number and no module.
    if where != "weights":
        for block in model.blocks:
            block.attention.dropout = 0.0
    tokens, lengths = every_sequence(model.task)

    def score(seed):
        return log_prob(model, tokens, lengths, training=True, noise=seed)

    same = score(0).equal(score(1))
    assert same is (where == "nowhere")


def local_attention(window):
    return wide("local_attention", spread=0.3, window=window)


def test_a_window_that_covers_everything_changes_nothing():
    # Names of the weights do not depend on the window.
    local = local_attention(LENGTH)
    dense = local_attention(0)
    names = [name for name, _ in local.named_parameters()]
    copy_weights(dense, local, *names)
    assert_same_model(dense, local)
    assert "window" not in to_dict(zoo.config("transformer_decoder"))


def test_a_state_with_a_window_has_the_stated_size():
    model = local_attention(3).eval()
    state = model.begin(1)
    # More tokens than the window has.
    for token in (1, 0, 2, 0, 1, 2):
        read = torch.tensor([token])
        _, state = model.advance(state, read)
    _, layers = state
    size = 0
    for layer in layers:
        size += sum(tensor.numel() for tensor in layer)
    assert size == model.state_size
    assert local_attention(0).state_size is None


@torch.no_grad()
def test_star_features_follow_the_equation():
    """Compare with a loop over positions that lists every memory."""
    sizes = {"length": 7, "width": 16, "layers": 2}
    model = tiny("star_transformer_causal", relay=True, **sizes).eval()
    x = torch.randn(1, 4, 16)
    e = list(x[0])
    h = e
    # A relay starts as the mean of the tokens so far.
    relays = []
    for i in range(4):
        so_far = torch.stack(e[: i + 1])
        relays.append(so_far.mean(0))
    for layer in range(2):
        satellites = []
        for i in range(4):
            # The token before, itself, its embedding and its relay.
            near = h[max(0, i - 1) : i + 1]
            memory = near + [e[i], relays[i]]
            part = model.satellites[layer]
            satellite = star_update(part, h[i], memory)
            satellites.append(satellite)
        h = satellites
        # What the last relays become is read by nothing.
        if layer == 0:
            for i in range(4):
                memory = [relays[i]] + h[: i + 1]
                relay = star_update(model.relays[0], relays[i], memory)
                relays[i] = relay
    actual = model.encode(x)[0]
    expected = torch.stack(h)
    assert_equal_single(actual, expected)


def star_update(part, query, memory):
    vectors = torch.stack(memory)
    queries = query[None, None]
    read = part.attention(queries, vectors[None])
    updated = part.norm(read.relu())
    return updated[0, 0]


@parametrize("points", [0, 3])
def test_spread_sets_the_standard_deviation_of_all_weights(points):
    fields = {"width": 64, "points": points}
    spread = tiny("set_transformer_causal", spread=0.02, **fields).blocks
    default = tiny("set_transformer_causal", **fields).blocks
    matrices = []
    for name, weight in spread.named_parameters():
        if weight.dim() == 2:
            matrices.append(name)
    assert len(matrices) >= 2 * 6
    for name in matrices:
        drawn = spread.get_parameter(name).std().item()
        usual = default.get_parameter(name).std()
        # The matrices have thousands of numbers, whose deviation is known to a few percent.
        assert drawn == pytest.approx(0.02, rel=0.15), name
        assert usual > 0.03


def test_biases_start_at_zero():
    model = tiny("set_transformer_causal", width=64, spread=0.02)
    for name, weight in model.blocks.named_parameters():
        is_bias = weight.dim() == 1 and "norm" not in name
        if is_bias:
            assert not weight.any(), name


EVERY_CUT = [cut.value for cut in Cut]
MODERN = [{}, {"cuts": EVERY_CUT}]
MODERN += [{"cuts": [cut]} for cut in EVERY_CUT]
MODERN += [{"memory": memory} for memory in PARTS]


def by_hand(model, tokens):
    """Return the logits after each token of one sequence, from the equations."""
    x = model.embedding.weight[tokens]
    for layer in model.blocks:
        positions = range(len(tokens))
        features = [position(layer, x, t) for t in positions]
        x = torch.stack(features)
    y = normed(model.norm, x)
    return y @ model.embedding.weight.T


def position(layer, x, t):
    """Return y_t of a layer."""
    cuts = layer.cuts
    u = normed(layer.norm, x)
    if Cut.CONVOLUTION not in cuts:
        taps = layer.conv.T
        # Nothing is before the first token.
        three_before = (0, 0, 3, 0)
        padded = nn.functional.pad(u, three_before)
        windows = padded.unfold(0, 4, 1).mT
        u = (taps * windows).sum(1)
    h = x[t] + attended(layer, u, t)
    if Cut.FEED_FORWARD in cuts:
        return h
    n = normed(layer.forward_norm, h)
    # Without its gate, the layer is a plain one with SiLU.
    gate = layer.gate(n)
    y = nn.functional.silu(gate)
    if Cut.GATE not in cuts:
        y = y * layer.up(n)
    return h + layer.down(y)


def normed(norm, x):
    if not hasattr(norm, "weight"):
        return x
    channels = x.shape[-1:]
    return nn.functional.rms_norm(x, channels, norm.weight, 1e-5)


@parametrize("fields", MODERN, ids=str)
def test_scores_are_those_of_the_equations(fields):
    sizes = {"vocab": 6, "length": 7, "layers": 2}
    sizes |= {"width": 8, "heads": 4, "groups": 2, "window": 2}
    model = tiny("modern_decoder", **sizes, **fields)
    model.double().eval()
    tokens = torch.tensor([1, 4, 5, 4, 5, 5, 4])
    with torch.no_grad():
        for weight in model.parameters():
            drawn = torch.randn_like(weight)
            weight.copy_(0.5 * drawn)
        logits = by_hand(model, tokens[:-1])
        lengths = torch.tensor([7])
        (scores,) = model.log_prob(tokens[None], lengths)
    expected = token_scores(logits, tokens[1:])
    assert_equal_double(scores[1:], expected)


E = 8
"""Width of the layers that the shared helper functions build."""


def as_transformer(model, place):
    """Return PyTorch's model with our weights; a final LayerNorm exists with `pre` only."""
    body = model.body
    pre = place is NormPosition.PRE
    depth = len(body.encoder)
    options = {"batch_first": True, "norm_first": pre}
    theirs = nn.Transformer(E, 2, depth, depth, 4 * E, **options)
    for name in ("encoder", "decoder"):
        blocks = getattr(body, name)
        layers = [as_layer(block, Activation.RELU) for block in blocks]
        part = getattr(theirs, name)
        part.layers = nn.ModuleList(layers)
        part.norm = getattr(body, f"{name}_norm")
    return theirs.eval()


def placed(embedded):
    """Return scaled vectors plus those of the positions, as the first transformer has them."""
    length = embedded.shape[1]
    positions = sinusoids(length, E).float()
    return embedded * E**0.5 + positions


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@parametrize("place", list(NormPosition))
def test_scores_equal_the_pytorch_transformer(place):
    model = small("transformer_encdec", width=E, norm=place)
    model = randomise_norms(model).eval()
    theirs = as_transformer(model, place)
    tokens, lengths = every_sequence(model.task)
    source, n = sources(model.task, len(tokens))
    places = torch.arange(source.shape[1])
    # torch's masks are true where nothing is read.
    beyond = places >= n[:, None]
    read = tokens[:, :-1]
    y = theirs(
        placed(model.source_embedding(source)),
        placed(model.embedding(read)),
        tgt_mask=~causal_mask(read.shape[1]),
        src_key_padding_mask=beyond,
        memory_key_padding_mask=beyond,
    )
    logits = y @ model.embedding.weight.T
    expected = token_scores(logits, tokens[:, 1:])
    actual = log_prob(model, tokens, lengths, source, n)
    assert_equal_single(actual[:, 1:], expected)


WIDE = {"width": 8, "spread": 0.3}
LIMITED = rows("models/cases.toml", "reach")
"""Row, fields, and how many tokens back the prediction reads."""
for name in DECODERS:
    # Hard attention ignores tokens that no head selects.
    if name != "hard_attention":
        LIMITED.append((name, WIDE, 3))


@parametrize(("name", "fields", "reach"), LIMITED, ids=str)
def test_a_prediction_depends_on_the_tokens_within_reach(name, fields, reach):
    model = small(name, **fields)
    expected = [back <= reach for back in (1, 2, 3)]
    assert lag_dependence(model) == expected


@cases("models/cases.toml", "ordered", "name, fields, matters")
def test_the_order_of_earlier_tokens_matters_if_positions_are_known(name, fields, matters):
    model = small(name, **fields).eval()
    tokens, _ = every_sequence(model.task)
    prefix = tokens[:, : LENGTH - 1]
    # Two tokens in the middle change places; the last is the query.
    moved = prefix[:, [0, 2, 1, 3]]
    with torch.no_grad():
        before = model.next_log_prob(prefix)
        after = model.next_log_prob(moved)
    change = (after - before).abs().max()
    if matters:
        assert change > 1e-3
    else:
        assert change < CLOSE
