"""Recurrent encoders and decoders: sequence to sequence, and autoencoders."""

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lmzoo import zoo
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
    FINE,
    SAME,
    assert_equal_single,
    batch,
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
    config = CELLS.parse(name)
    forward = CELLS.build(config, E, S)
    backward = CELLS.build(config, E, S)
    library = torch_layers(forward, backward, endings=("l0", "l0_reverse"), bidirectional=True)
    x = torch.randn(3, S, E)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    ones = torch.ones(2, 3, E)
    if name == "gru":
        outputs, final = library(packed, ones)
        final = (final,)
    else:
        outputs, final = library(packed, (ones, ones))
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    # torch's outputs are zero beyond the lengths.
    real = (torch.arange(S) < LENGTHS[:, None])[..., None]
    both = [encode(forward, x, LENGTHS), encode_backward(backward, x, LENGTHS)]
    for direction, (h, state) in enumerate(both):
        assert_equal_single(h * real, outputs.chunk(2, dim=-1)[direction])
        for part, expected in zip(state, final, strict=True):
            assert_equal_single(part, expected[direction])


def test_the_last_output_is_the_final_state():
    cell = CELLS.build(CELLS.parse("gru"), E, S)
    h, (final,) = encode(cell, torch.randn(3, S, E), LENGTHS)
    assert_equal_single(last_output(h, LENGTHS), final)


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
def test_a_growing_state_is_refused(name):
    with raises_user_error("'mgru'", "grows", "use a cell with a fixed state size"):
        tiny(name, cell={"name": "mgru", "mutations": [4, 11]})


@pytest.mark.parametrize("name", BOTH)
def test_an_annealed_slope_is_refused(name):
    with raises_user_error("cell.anneal=5", "does not scan", "drop cell.anneal"):
        tiny(name, cell={"name": "hm_lstm", "anneal": 5})


@pytest.mark.parametrize("name", BOTH + ["transformer_encdec"])
def test_a_task_without_sources_is_refused(name):
    with raises_user_error(name, "no source is given", "copy, reverse"):
        zoo.build(zoo.config(name), Task(vocab=5, length=4))


@pytest.mark.parametrize("name", BOTH + ["transformer_encdec"])
def test_a_prediction_without_a_source_is_refused(name):
    with raises_user_error(name, "no source is given"):
        tiny(name).next_log_prob(torch.ones(1, 1, dtype=torch.int64))


def library_cell(weights: dict[str, Tensor]) -> nn.GRUCell:
    cell = nn.GRUCell(weights["weight_ih"].shape[1], 4).double()
    cell.load_state_dict(weights)
    return cell


def outputs_by_hand(model: LanguageModel, tokens: Tensor, source: Tensor) -> Tensor:
    """Compute one target of the attention model with PyTorch's GRU cells and attention."""
    weights = model.decoder.w.state_dict()
    if model.join is None:
        # One matrix reads the token and what was attended to.
        weights["weight_ih"] = torch.cat([weights["weight_ih"], model.read.weight], dim=1)
    encoder = library_cell(model.encoder.w.state_dict())
    decoder = library_cell(weights)
    h = torch.ones(1, 4, dtype=torch.float64)
    memory = []
    for x in model.source_embedding(source):
        h = encoder(x[None], h)
        memory.append(h)
    keys = torch.cat(memory)
    outputs = []
    for x in model.embedding(tokens):
        attended = torch.softmax(h @ keys.T, -1) @ keys
        read = torch.cat([x[None], attended], dim=-1)
        if model.join is not None:
            read = model.join(read)
        h = decoder(read, h)
        outputs.append(h)
    return torch.cat(outputs)


@pytest.mark.parametrize("folded", [True, False])
@torch.no_grad()
def test_attention_model_equals_a_manual_computation(*, folded):
    model = small("seq2seq_dot_attention", folded=folded).double().eval()
    tokens, lengths = every_sequence(model.task)
    source, n = sources(model.task, 4)
    actual = log_prob(model, tokens[:4], lengths[:4], source, n)
    for i, size in enumerate(n.tolist()):
        y = outputs_by_hand(model, tokens[i, :-1], source[i, :size])
        dense = torch.log_softmax(y @ model.embedding.weight.T, dim=-1)
        expected = dense.gather(1, tokens[i, 1:, None])[:, 0]
        assert_close(actual[i, 1:], expected, FINE, f"scores given {size} source tokens")


@pytest.mark.parametrize("folded", [True, False])
def test_attention_models_obey_the_laws(*, folded):
    model = tiny("seq2seq_dot_attention", folded=folded)
    law_sums_to_one(model)
    law_log_prob_equals_next_log_prob(model)


@pytest.mark.parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_bidirectional_encoder_reads_later_source_tokens(*, bidirectional):
    """With a forward encoder only, h^enc_i depends on the source tokens up to i."""
    model = small("seq2seq_dot_attention", bidirectional=bidirectional).eval()
    source, n = sources(model.task, 1)
    changed = source.clone()
    # Only the last token of the source is another one.
    changed[:, -1] = (source[:, -1] + 1) % 3
    before = model.start(source, n).source
    after = model.start(changed, n).source
    moved = (after - before).abs().amax((0, 2))
    assert (moved[:-1] > 1e-4).all() == bidirectional
    assert moved[-1] > 1e-4


@pytest.mark.parametrize("cell", ["mgu", {"name": "gru", "reset": "input"}])
def test_a_cell_without_one_linear_map_of_its_inputs_needs_folded_ones(cell):
    with raises_user_error("folded=False", "choose rnn, lstm or gru"):
        tiny("seq2seq_dot_attention", cell=cell, folded=False)


FLAT = ["linear_autoencoder", "mlp_autoencoder"]


class Decoded:
    """The outputs of an autoencoder for each of six shared draws of noise."""

    def __init__(self, **fields):
        self.model = small("linear_autoencoder", samples=6, **fields).eval()
        self.table = self.model.embedding.weight
        self.spread = fields.get("noise_std")
        if self.spread is None:
            self.spread = self.model.code.log_beta.neg().exp()

    def outputs(self, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        z = self.model.encode(tokens, lengths)
        eps = normal(shared_uniforms((6, 1, z.shape[1]), z))
        return [self.model.decode((z + self.spread * e)[None])[0] for e in eps]


NOISE = pytest.mark.parametrize("fields", [{"noise_std": 0.8}, {"gaussian": True}], ids=str)


@torch.no_grad()
@NOISE
def test_evaluation_averages_scores_over_shared_noise(fields):
    decoded = Decoded(**fields)
    model = decoded.model
    tokens, lengths = batch(model.task)
    scores = []
    for y in decoded.outputs(tokens, lengths):
        scores.append(model.emission.log_prob(y, tokens[:, 1:], decoded.table))
    mean = torch.stack(scores).mean(0)
    assert_equal_single(model.score_tokens(tokens, lengths), mean)


@torch.no_grad()
@NOISE
def test_next_token_probabilities_are_averaged_over_shared_noise(fields):
    """The mean of distributions is one; the mean of scores is not."""
    decoded = Decoded(**fields)
    model = decoded.model
    prefix = batch(model.task)[0][:, :3]
    lengths = torch.full((len(prefix),), 3)
    log_p = []
    for y in decoded.outputs(prefix, lengths):
        log_p.append(model.emission.dense(y[:, 2], decoded.table))
    actual = model.next_log_prob(prefix)
    assert_equal_single(actual.exp(), torch.stack(log_p).exp().mean(0))
    assert (actual - log_p[0]).abs().max() > 1e-3
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
    score = log_prob(model, tokens, lengths, training=True)
    paid = score - training_objective(model, tokens, lengths)
    kl = model.code.kl(model.encode(tokens, lengths))
    assert (kl > 1e-3).all(), "a KL of zero shows nothing"
    assert_equal_single(paid.sum(1), kl)


@pytest.mark.parametrize("name", FLAT)
def test_objective_is_the_score_without_a_prior(name):
    model = small(name)
    tokens, lengths = batch(model.task)
    actual = training_objective(model, tokens, lengths)
    assert_close(actual, log_prob(model, tokens, lengths), SAME, "objective")


@pytest.mark.parametrize("training", [False, True])
def test_only_training_is_random(*, training):
    model = small("linear_autoencoder", gaussian=True)
    tokens, lengths = batch(model.task)
    first = log_prob(model, tokens, lengths, training=training, noise=0)
    second = log_prob(model, tokens, lengths, training=training, noise=1)
    assert first.equal(second) != training
