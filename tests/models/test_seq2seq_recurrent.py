"""Recurrent encoders and decoders: sequence to sequence, and autoencoders."""

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.contract import LanguageModel, Task
from lmzoo.functional.noise import normal, shared_uniforms
from lmzoo.laws.conditional import law_source_is_read, law_source_padding_is_ignored
from lmzoo.laws.density import (
    law_log_prob_equals_next_log_prob,
    law_next_is_a_distribution,
    law_sums_to_one,
)
from lmzoo.laws.tiny import assert_close, log_prob
from lmzoo.models.encoder_decoder import last_output
from lmzoo.models.seq2seq_recurrent import encode, encode_backward
from tests.cells.support import torch_layers
from tests.models.equivalence import small
from tests.tiny import (
    CLOSE,
    FINE,
    SAME,
    assert_equal_single,
    batch,
    default_source,
    every_sequence,
    sources,
    tiny,
)
from tests.user_errors import raises_user_error

E = 3
S = 5
LENGTHS = torch.tensor([5, 1, 3])


BOTH = ["seq2seq", "seq2seq_dot_attention"]


@pytest.mark.parametrize("name", ["gru", "lstm"])
@torch.no_grad()
def test_both_directions_equal_the_pytorch_bidirectional_module(name):
    """Compare outputs and final states on sources of different lengths."""
    torch.manual_seed(0)
    forward, backward = cells = [CELLS.build(CELLS.parse(name), E, S) for _ in range(2)]
    library = torch_layers(*cells, endings=("l0", "l0_reverse"), bidirectional=True)
    x = torch.randn(3, S, E)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    ones = torch.ones(2, 3, E)
    begin = (ones, ones)
    if name == "gru":
        begin = ones
    outputs, final = library(packed, begin)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    if name == "gru":
        final = (final,)
    real = (torch.arange(S) < LENGTHS[:, None])[..., None]
    for d, (h, state) in enumerate(
        (encode(forward, x, LENGTHS), encode_backward(backward, x, LENGTHS))
    ):
        assert_close(h * real, outputs[..., d * E : (d + 1) * E], CLOSE, f"outputs, direction {d}")
        for part, expected in zip(state, final, strict=True):
            assert_close(part, expected[d], CLOSE, f"final state, direction {d}")
    h, state = encode(forward, x, LENGTHS)
    assert_equal_single(last_output(h, LENGTHS), state[0])


@pytest.mark.parametrize(
    ("name", "cell"),
    [("seq2seq", "mlstm"), ("seq2seq_dot_attention", "hm_lstm"), ("seq2seq", "lru")],
)
def test_any_cell_with_a_fixed_state_size_obeys_the_laws(name, cell):
    model = tiny(name, cell=cell)
    law_sums_to_one(model)
    law_log_prob_equals_next_log_prob(model)
    law_source_is_read(model)
    law_source_padding_is_ignored(model)


@pytest.mark.parametrize("name", BOTH)
def test_a_growing_state_and_an_annealed_slope_are_refused(name):
    with raises_user_error("'mgru'", "grows", "use a cell with a fixed state size"):
        tiny(name, cell={"name": "mgru", "mutations": [4, 11]})
    with raises_user_error("cell.anneal=5", "does not scan", "drop cell.anneal"):
        tiny(name, cell={"name": "hm_lstm", "anneal": 5})
    assert tiny(name, cell={"name": "hm_lstm", "slope": 2.0}).decoder.slope == 2.0


@pytest.mark.parametrize("name", [*BOTH, "transformer_encdec"])
def test_corpus_without_sources_is_refused(name):
    with raises_user_error(name, "no source is given", "copy, reverse"):
        zoo.build(zoo.config(name), Task(vocab=5, length=4))
    model = tiny(name)
    with raises_user_error(name, "no source is given"):
        model.next_log_prob(torch.ones(1, 1, dtype=torch.int64))


def outputs_by_hand(model: LanguageModel, tokens: Tensor, source: Tensor) -> Tensor:
    """Compute one target of the attention model with PyTorch's GRU cells and attention."""
    encoder, decoder = (cell.w.state_dict() for cell in (model.encoder, model.decoder))
    if model.join is None:
        decoder["weight_ih"] = torch.cat([decoder["weight_ih"], model.read.weight], dim=1)
    cells = []
    for weights in (encoder, decoder):
        cells.append(nn.GRUCell(weights["weight_ih"].shape[1], 4).double())
        cells[-1].load_state_dict(weights)
    h = torch.ones(1, 4, dtype=torch.float64)
    memory = []
    outputs = []
    for x in model.source_embedding(source):
        h = cells[0](x[None], h)
        memory.append(h)
    keys = torch.cat(memory)[None]
    for x in model.embedding(tokens):
        attended = nn.functional.scaled_dot_product_attention(h[None], keys, keys, scale=1.0)[0]
        both = torch.cat([x[None], attended], dim=-1)
        h = cells[1](both if model.join is None else both @ model.join.weight.T, h)
        outputs.append(h)
    return torch.cat(outputs)


@pytest.mark.parametrize("folded", [True, False])
@torch.no_grad()
def test_attention_model_equals_a_manual_computation(folded):
    model = small("seq2seq_dot_attention", folded=folded).double().eval()
    tokens, lengths = every_sequence(model.task)
    source, n = sources(model.task, 4)
    for i, (x, m) in enumerate(zip(source, n.tolist(), strict=True)):
        y = outputs_by_hand(model, tokens[i, :-1], x[:m])
        dense = torch.log_softmax(y @ model.embedding.weight.T, dim=-1)
        expected = dense.gather(1, tokens[i, 1:, None])[:, 0]
        actual = log_prob(model, tokens[i : i + 1], lengths[:1], x[None], n[i : i + 1])
        assert_close(actual[0, 1:], expected, FINE, f"scores given {m} source tokens")
    model = tiny("seq2seq_dot_attention", folded=folded)
    law_sums_to_one(model)
    law_log_prob_equals_next_log_prob(model)


@torch.no_grad()
def test_bidirectional_encoder_reads_later_source_tokens():
    """With a forward encoder only, h^enc_i depends on the source tokens up to i."""
    source, n = sources(small("seq2seq").task, 1)
    changed = source.clone()
    changed[:, -1] = (source[:, -1] + 1) % 3
    for bidirectional in (False, True):
        model = small("seq2seq_dot_attention", bidirectional=bidirectional).eval()
        moved = (model.start(source, n).source - model.start(changed, n).source).abs().amax((0, 2))
        assert (moved[:-1] > 1e-4).all() == bidirectional
        assert moved[-1] > 1e-4
    assert default_source(model, 2)[0].shape == (2, 3)


@pytest.mark.parametrize("cell", ["mgu", {"name": "gru", "reset": "input"}])
def test_a_cell_without_one_linear_map_of_its_inputs_needs_folded_ones(cell):
    with raises_user_error("folded=False", "choose rnn, lstm or gru"):
        tiny("seq2seq_dot_attention", cell=cell, folded=False)


FLAT = ["linear_autoencoder", "mlp_autoencoder"]


@torch.no_grad()
@pytest.mark.parametrize("fields", [{"noise_std": 0.8}, {"gaussian": True}], ids=str)
def test_evaluation_averages_over_shared_noise(fields):
    """Of scores, and of next-token probabilities, whose mean is a distribution."""
    model = small("linear_autoencoder", samples=6, **fields).eval()
    (tokens, lengths) = batch(model.task)
    emission = model.emission
    table = model.embedding.weight
    spread = fields.get("noise_std") or model.code.log_beta.neg().exp()

    def decoded(z: Tensor) -> Tensor:
        eps = normal(shared_uniforms((6, 1, z.shape[1]), z))
        return torch.cat([model.decode((z + spread * e)[None]) for e in eps])

    per_draw = [
        emission.log_prob(y, tokens[:, 1:], table) for y in decoded(model.encode(tokens, lengths))
    ]
    mean = torch.stack(per_draw).mean(0)
    assert_equal_single(model.score_tokens(tokens, lengths), mean)
    prefix = tokens[:, :3]
    y = decoded(model.encode(prefix, torch.full((len(prefix),), 3)))
    per_draw = [emission.dense(one, table) for one in y[:, :, 2]]
    actual = model.next_log_prob(prefix)
    assert_equal_single(actual.exp(), torch.stack(per_draw).exp().mean(0))
    assert (actual - per_draw[0]).abs().max() > 1e-3
    law_next_is_a_distribution(model)


def training_objective(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the training objective with noise from a fixed seed."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return model.train().objective(tokens, lengths)


@torch.no_grad()
def test_kl_equals_the_kl_of_two_gaussians_with_equal_variance():
    code = small("linear_autoencoder", gaussian=True).code
    mean = torch.randn(5, len(code.log_beta), generator=torch.Generator().manual_seed(0))
    spread = 1 / code.log_beta.exp()
    q = Normal(mean, spread)
    p = Normal(code.prior_mean, spread)
    assert_equal_single(code.kl(mean), kl_divergence(q, p).sum(-1))
    assert_close(code.kl(code.prior_mean[None]), torch.zeros(1), SAME, "KL at the prior's mean")


@pytest.mark.parametrize("name", FLAT)
def test_objective_is_the_score_minus_the_kl(name):
    model = small(name, gaussian=True)
    tokens, lengths = batch(model.task)
    paid = log_prob(model, tokens, lengths, training=True) - training_objective(
        model, tokens, lengths
    )
    kl = model.code.kl(model.encode(tokens, lengths)).detach()
    assert (kl > 1e-3).all(), "a KL of zero shows nothing"
    assert_equal_single(paid.sum(1), kl)
    plain = small(name)
    assert_close(
        training_objective(plain, tokens, lengths),
        log_prob(plain, tokens, lengths),
        SAME,
        "without a prior",
    )


def test_only_training_is_random_and_noise_std_is_refused():
    model = small("linear_autoencoder", gaussian=True)
    tokens, lengths = batch(model.task)
    first, second = (log_prob(model, tokens, lengths, noise=n) for n in (0, 1))
    assert first.equal(second)
    first, second = (log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1))
    assert not first.equal(second)
    with pytest.raises(UserError, match=r"noise_std=0\.3: gaussian=True learns"):
        small("linear_autoencoder", gaussian=True, noise_std=0.3)
