"""Recurrent encoders and decoders: sequence to sequence, and autoencoders."""

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import Task
from lmzoo.functional.noise import normal, shared_uniforms
from lmzoo.laws.conditional import law_source_is_read, law_source_padding_is_ignored
from lmzoo.laws.density import (
    law_log_prob_equals_next_log_prob,
    law_next_is_a_distribution,
    law_sums_to_one,
)
from lmzoo.laws.tiny import assert_close, full_lengths, log_prob
from lmzoo.models.encoder_decoder import last_output
from lmzoo.models.seq2seq_recurrent import encode, encode_backward
from tests.cases import parametrize
from tests.cells.support import torch_layers
from tests.models.equivalence import small, token_scores
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


@parametrize("name", ["gru", "lstm"])
@torch.no_grad()
def test_both_directions_equal_the_pytorch_bidirectional_module(name):
    """Compare outputs and final states on sources of different lengths."""
    config = CELLS.parse(name)
    forward = CELLS.build(config, E, S)
    backward = CELLS.build(config, E, S)
    endings = ("l0", "l0_reverse")
    library = torch_layers(forward, backward, endings=endings, bidirectional=True)
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
    real = torch.arange(S) < LENGTHS[:, None]
    read_forward = encode(forward, x, LENGTHS)
    read_backward = encode_backward(backward, x, LENGTHS)
    theirs = outputs.chunk(2, dim=-1)
    # torch joins both directions.
    both = [read_forward, read_backward]
    for direction, (h, state) in enumerate(both):
        actual = h * real[..., None]
        assert_equal_single(actual, theirs[direction])
        for part, expected in zip(state, final, strict=True):
            assert_equal_single(part, expected[direction])


def test_the_last_output_is_the_final_state():
    config = CELLS.parse("gru")
    cell = CELLS.build(config, E, S)
    x = torch.randn(3, S, E)
    h, (final,) = encode(cell, x, LENGTHS)
    last = last_output(h, LENGTHS)
    assert_equal_single(last, final)


OTHER_CELLS = [
    ("seq2seq", "mlstm"),
    ("seq2seq_dot_attention", "hm_lstm"),
    ("seq2seq", "lru"),
]


@parametrize(("name", "cell"), OTHER_CELLS)
def test_any_cell_with_a_fixed_state_size_obeys_the_laws(name, cell):
    model = tiny(name, cell=cell)
    law_sums_to_one(model)
    law_log_prob_equals_next_log_prob(model)
    law_source_is_read(model)
    law_source_padding_is_ignored(model)


@parametrize("name", BOTH)
def test_a_growing_state_is_refused(name):
    cell = {"name": "mgru", "mutations": [4, 11]}
    with raises_user_error("'mgru'", "grows", "use a cell with a fixed state size"):
        tiny(name, cell=cell)


@parametrize("name", BOTH)
def test_an_annealed_slope_is_refused(name):
    cell = {"name": "hm_lstm", "anneal": 5}
    with raises_user_error("cell.anneal=5", "does not scan", "drop cell.anneal"):
        tiny(name, cell=cell)


@parametrize("name", BOTH + ["transformer_encdec"])
def test_a_task_without_sources_is_refused(name):
    config = zoo.config(name)
    task = Task(vocab=5, length=4)
    with raises_user_error(name, "no source is given", "copy, reverse"):
        zoo.build(config, task)


@parametrize("name", BOTH + ["transformer_encdec"])
def test_a_prediction_without_a_source_is_refused(name):
    prefix = torch.ones(1, 1).long()
    with raises_user_error(name, "no source is given"):
        tiny(name).next_log_prob(prefix)


def library_cell(weights):
    width = weights["weight_ih"].shape[1]
    cell = nn.GRUCell(width, 4).double()
    cell.load_state_dict(weights)
    return cell


def outputs_by_hand(model, tokens, source):
    """Compute one target of the attention model with PyTorch's GRU cells and attention."""
    weights = model.decoder.w.state_dict()
    if model.join is None:
        # One matrix reads the token and what was attended to.
        maps = [weights["weight_ih"], model.read.weight]
        weights["weight_ih"] = torch.cat(maps, dim=1)
    encoder = library_cell(model.encoder.w.state_dict())
    decoder = library_cell(weights)
    h = torch.ones(1, 4).double()
    memory = []
    for x in model.source_embedding(source):
        h = encoder(x[None], h)
        memory.append(h)
    keys = torch.cat(memory)
    outputs = []
    for x in model.embedding(tokens):
        shares = torch.softmax(h @ keys.T, -1)
        attended = shares @ keys
        token = x[None]
        read = torch.cat([token, attended], dim=-1)
        if model.join is not None:
            read = model.join(read)
        h = decoder(read, h)
        outputs.append(h)
    return torch.cat(outputs)


@parametrize("folded", [True, False])
@torch.no_grad()
def test_attention_model_equals_a_manual_computation(*, folded):
    model = small("seq2seq_dot_attention", folded=folded)
    model.double().eval()
    tokens, lengths = every_sequence(model.task)
    tokens = tokens[:4]
    source, n = sources(model.task, 4)
    actual = log_prob(model, tokens, lengths[:4], source, n)
    for i, size in enumerate(n.tolist()):
        sentence = tokens[i]
        read = source[i, :size]
        y = outputs_by_hand(model, sentence[:-1], read)
        logits = y @ model.embedding.weight.T
        expected = token_scores(logits, sentence[1:])
        found = actual[i, 1:]
        assert_close(found, expected, FINE, f"scores given {size} source tokens")


@parametrize("folded", [True, False])
def test_attention_models_obey_the_laws(*, folded):
    model = tiny("seq2seq_dot_attention", folded=folded)
    law_sums_to_one(model)
    law_log_prob_equals_next_log_prob(model)


@parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_bidirectional_encoder_reads_later_source_tokens(*, bidirectional):
    """With a forward encoder only, h^enc_i depends on the source tokens up to i."""
    model = small("seq2seq_dot_attention", bidirectional=bidirectional).eval()
    source, n = sources(model.task, 1)
    changed = source.clone()
    # Only the last token of the source is another one.
    last = source[:, -1]
    changed[:, -1] = (last + 1) % 3
    before = model.start(source, n).source
    after = model.start(changed, n).source
    # One answer for each token of the source.
    change = (after - before).abs()
    moved = change.amax((0, 2)) > 1e-4
    assert moved[:-1].all() == bidirectional
    assert moved[-1]


OTHER_MAPS = ["mgu", {"name": "gru", "reset": "input"}]


@parametrize("cell", OTHER_MAPS)
def test_a_cell_without_one_linear_map_of_its_inputs_needs_folded_ones(cell):
    with raises_user_error("folded=False", "choose rnn, lstm or gru"):
        tiny("seq2seq_dot_attention", cell=cell, folded=False)


FLAT = ["linear_autoencoder", "mlp_autoencoder"]


class Decoded:
    """The outputs of an autoencoder for each of six shared draws of noise."""

    def __init__(self, **fields):
        model = small("linear_autoencoder", samples=6, **fields)
        model.eval()
        self.model = model
        self.table = model.embedding.weight
        self.spread = fields.get("noise_std")
        if self.spread is None:
            self.spread = torch.exp(-model.code.log_beta)

    def outputs(self, tokens, lengths):
        z = self.model.encode(tokens, lengths)
        width = z.shape[1]
        uniforms = shared_uniforms((6, 1, width), z)
        eps = normal(uniforms)
        moved = z + self.spread * eps
        return self.model.decode(moved)


NOISES = [{"noise_std": 0.8}, {"gaussian": True}]
NOISE = parametrize("fields", NOISES, ids=str)


@torch.no_grad()
@NOISE
def test_evaluation_averages_scores_over_shared_noise(fields):
    decoded = Decoded(**fields)
    model = decoded.model
    tokens, lengths = batch(model.task)
    scores = []
    for y in decoded.outputs(tokens, lengths):
        words = tokens[:, 1:]
        of_draw = model.emission.log_prob(y, words, decoded.table)
        scores.append(of_draw)
    mean = torch.stack(scores).mean(0)
    actual = model.score_tokens(tokens, lengths)
    assert_equal_single(actual, mean)


@torch.no_grad()
@NOISE
def test_next_token_probabilities_are_averaged_over_shared_noise(fields):
    """The mean of distributions is one; the mean of scores is not."""
    decoded = Decoded(**fields)
    model = decoded.model
    tokens, _ = batch(model.task)
    prefix = tokens[:, :3]
    lengths = full_lengths(prefix)
    log_p = []
    for y in decoded.outputs(prefix, lengths):
        last = y[:, 2]
        of_draw = model.emission.dense(last, decoded.table)
        log_p.append(of_draw)
    actual = model.next_log_prob(prefix)
    probabilities = torch.stack(log_p).exp()
    expected = probabilities.mean(0)
    assert_equal_single(actual.exp(), expected)
    one_draw = (actual - log_p[0]).abs()
    assert one_draw.max() > 1e-3
    law_next_is_a_distribution(model)


def training_objective(model, tokens, lengths):
    """Return the training objective with noise from a fixed seed."""
    torch.manual_seed(0)
    with torch.no_grad():
        return model.train().objective(tokens, lengths)


@torch.no_grad()
def test_kl_equals_the_kl_of_two_gaussians_with_equal_variance():
    code = small("linear_autoencoder", gaussian=True).code
    width = len(code.log_beta)
    mean = torch.randn(5, width)
    spread = 1 / code.log_beta.exp()
    q = Normal(mean, spread)
    p = Normal(code.prior_mean, spread)
    actual = code.kl(mean)
    expected = kl_divergence(q, p).sum(-1)
    assert_equal_single(actual, expected)
    at_prior = code.prior_mean[None]
    nothing = torch.zeros(1)
    assert_close(code.kl(at_prior), nothing, SAME, "KL at the prior's mean")


@parametrize("name", FLAT)
def test_objective_is_the_score_minus_the_kl(name):
    model = small(name, gaussian=True)
    tokens, lengths = batch(model.task)
    score = log_prob(model, tokens, lengths, training=True)
    # Both have the same noise.
    paid = score - training_objective(model, tokens, lengths)
    means = model.encode(tokens, lengths)
    kl = model.code.kl(means)
    assert (kl > 1e-3).all(), "a KL of zero shows nothing"
    assert_equal_single(paid.sum(1), kl)


@parametrize("name", FLAT)
def test_objective_is_the_score_without_a_prior(name):
    model = small(name)
    tokens, lengths = batch(model.task)
    actual = training_objective(model, tokens, lengths)
    expected = log_prob(model, tokens, lengths)
    assert_close(actual, expected, SAME, "objective")


@parametrize("training", [False, True])
def test_only_training_is_random(*, training):
    model = small("linear_autoencoder", gaussian=True)
    tokens, lengths = batch(model.task)

    def score(seed):
        return log_prob(model, tokens, lengths, training=training, noise=seed)

    same = score(0).equal(score(1))
    assert same != training
