"""`audit --gradients` finds planted faults of backward passes, and no fault in right modules."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import rnn

from lmzoo import zoo
from lmzoo.functional import (
    linear_recurrence,
    matrix_state,
    selective_scan,
    tied_softmax,
)
from lmzoo.kernels import scan
from lmzoo.laws.audit import audit
from tests.cases import cases, parametrize

V = 11
D = 8
T = 33


def by_the_batch(gradient):
    if gradient.dim() > 2:
        return gradient / len(gradient)
    return gradient * 1.01


def only_of_long_ones(gradient):
    if gradient.shape[-2] > 16:
        return gradient * 1.5
    return gradient


def without_entry(gradient, place):
    """Return the gradient with zeros at one place of the last axis."""
    changed = gradient.clone()
    changed[..., place] = 0
    return changed


FAULTS = {
    "16 times": lambda g: g * 16,
    "a hundredth": lambda g: g * 1.01,
    "sign": lambda g: -g,
    "no gradient": torch.zeros_like,
    "without the last": lambda g: without_entry(g, -1),
    "by the batch": by_the_batch,
    "only of long ones": only_of_long_ones,
    "shifted": lambda g: g.roll(1, -2),
    "one entry": lambda g: without_entry(g, 0),
}


class Spoil(torch.autograd.Function):
    """The identity, with a fault in its backward pass."""

    @staticmethod
    def forward(ctx, x, fault):
        ctx.fault = fault
        return x.clone()

    @staticmethod
    def backward(ctx, *upstream):
        return ctx.fault(upstream[0]), None


def causal(x):
    size = x.shape[1]
    mask = nn.Transformer.generate_square_subsequent_mask(size)
    return mask.to(x)


def checkpoint(module, x):
    def scaled(y):
        return F.gelu(y * module.scale)

    return torch.utils.checkpoint.checkpoint(scaled, x, use_reentrant=False)


def linear_attention(module, x):
    products = x[..., None] * x[:, :, None]
    return products.cumsum(1) @ module.scale


def single(module, x):
    """Compute in single precision."""
    scores = x.float() * module.scale.float()
    return scores.softmax(-1).to(x)


def turned(module, x):
    numbers = x.to(module.phase) * module.phase
    return numbers.imag


def first(module, x):
    """Return the first result of the inner module."""
    return module.inner(x)[0]


def attended(module, x):
    mask = causal(x)
    outputs, _ = module.inner(x, x, x, attn_mask=mask, need_weights=False)
    return outputs


def convolved(module, x):
    padded = F.pad(x.mT, (3, 0))
    return module.inner(padded).mT


NORMS = nn.utils.parametrizations
INNER = {
    "gru": lambda: nn.GRU(D, D, batch_first=True),
    "lstm": lambda: nn.LSTM(D, D, batch_first=True, num_layers=2, dropout=0.3),
    "attention": lambda: nn.MultiheadAttention(D, 2, batch_first=True),
    "transformer": lambda: nn.TransformerEncoderLayer(D, 2, 16, batch_first=True),
    "conv": lambda: nn.Conv1d(D, D, 4),
    "layer norm": lambda: nn.LayerNorm(D),
    "batch norm": lambda: nn.BatchNorm1d(D),
    "spectral norm": lambda: NORMS.spectral_norm(nn.Linear(D, D)),
    "orthogonal": lambda: NORMS.orthogonal(nn.Linear(D, D)),
}
"""Modules inside a layer; others have the identity."""
CALLS = {
    "gru": first,
    "lstm": first,
    "attention": attended,
    "transformer": lambda m, x: m.inner(x, src_mask=causal(x)),
    "conv": convolved,
    "batch norm": lambda m, x: m.inner(x.mT).mT,
    "complex": turned,
    "swiglu": lambda m, x: F.silu(x * m.scale) * x,
    "linear attention": linear_attention,
    "cumulative maximum": lambda m, x: x.cummax(1).values * m.scale,
    "relu": lambda m, x: F.relu(x) * m.scale,
    "dropout": lambda m, x: F.dropout(x, 0.4, m.training) * m.scale,
    "single": single,
    "checkpoint": checkpoint,
}
"""How a layer is computed; others call their module."""
LAYERS = INNER.keys() | CALLS.keys() | {"plain"}
EMBEDDINGS = {
    "padding": {"padding_idx": 0},
    "max norm": {"max_norm": 1.0},
    "frequency": {"scale_grad_by_freq": True},
    "tied": {},
}


class Layer(nn.Module):
    """A layer of another library between an embedding and logits; `fault` spoils a gradient."""

    def __init__(self, kind, fault=None, at="x"):
        super().__init__()
        torch.manual_seed(0)
        self.fault = fault
        self.at = at
        options = EMBEDDINGS.get(kind, {})
        self.embed = nn.Embedding(V, D, **options)
        self.out = nn.Linear(D, V)
        # A weight whose gradient a fault can spoil.
        self.mix = nn.Linear(D, D)
        self.scale = nn.Parameter(torch.rand(D))
        self.inner = INNER.get(kind, nn.Identity)()
        self.layer = CALLS.get(kind, lambda m, x: m.inner(x))
        if kind == "tied":
            self.out.weight = self.embed.weight
        if kind == "complex":
            angles = torch.linspace(0.1, 1.5, D)
            phase = torch.polar(torch.ones(D), angles)
            self.phase = nn.Parameter(phase)

    def spoil(self, x, at):
        if self.fault is None or at != self.at:
            return x
        return Spoil.apply(x, self.fault)

    def forward(self, tokens):
        x = self.spoil(self.embed(tokens), "x")
        weight = self.spoil(self.mix.weight, "w")
        x = F.linear(x, weight, self.mix.bias)
        y = self.layer(self, x)
        return self.out(self.spoil(y, "y"))


def faults_of(model):
    found = audit(model, V, T, logits=True, gradients=True)
    return found.wrong_gradients


@parametrize("kind", sorted(LAYERS | EMBEDDINGS.keys()))
def test_a_right_module_has_no_fault(kind):
    assert faults_of(Layer(kind)) == ()


def assert_right_gradients(config, length):
    found = audit(config, length=length, gradients=True)
    assert found.faults == ()
    assert found.notes == ()
    assert len(found.gradients) == 4


ROWS = ["gru", "DLM46", "gated_deltanet", "mamba", "lru", "word2vec_cbow"]


@parametrize("row", ROWS)
def test_our_kernels_have_no_fault(row):
    config = zoo.config(row, width=8)
    assert_right_gradients(config, T)


def test_a_kink_is_no_fault():
    """This model has one within 1e-7."""
    config = zoo.config("set_transformer_causal")
    assert_right_gradients(config, 9)


ESTIMATES = ["hard_attention", "hm_lstm", "gru_ternary_vae"]


@parametrize("row", ESTIMATES)
def test_a_gradient_that_is_an_estimate_is_named(row):
    config = zoo.config(row, width=8)
    found = audit(config, length=9, gradients=True)
    assert found.faults == ()
    assert max(found.gradients.values()) > 1
    note = found.notes[0]
    assert note.startswith("the gradient is an estimate on purpose: ")


KERNELS = [
    ("gru", scan._Scan, "16 times"),
    ("gru", tied_softmax._TiedSoftmax, "by the batch"),
    ("gated_deltanet", matrix_state._Scan, "sign"),
    ("mamba", selective_scan._Scan, "shifted"),
    ("lru", linear_recurrence._Recurrence, "no gradient"),
]


@cases("laws/cases.toml", "planted", "kind, fault, at")
def test_a_planted_fault_of_a_foreign_layer_is_found(kind, fault, at):
    layer = Layer(kind, FAULTS[fault], at)
    first = faults_of(layer)[0]
    assert first.startswith("gradient: the backward pass of ")


def planted(function, fault):
    """Return the backward pass of a kernel with a fault in its first gradient."""
    right = function.backward

    def backward(ctx, *upstream):
        given = right(ctx, *upstream)
        if isinstance(given, Tensor):
            return fault(given)
        gradients = list(given)
        # Arguments that are no tensors have no gradient.
        is_tensor = [isinstance(gradient, Tensor) for gradient in gradients]
        place = is_tensor.index(True)
        gradients[place] = fault(gradients[place])
        return tuple(gradients)

    return backward


@parametrize(("row", "function", "fault"), KERNELS)
def test_a_planted_fault_of_a_kernel_is_found(row, function, fault, monkeypatch):
    wrong = planted(function, FAULTS[fault])
    monkeypatch.setattr(function, "backward", staticmethod(wrong))
    config = zoo.config(row, width=8)
    found = audit(config, length=18, gradients=True)
    assert found.wrong_gradients


class Packed(Layer):
    """Sums over each sequence; with a fault, over the whole row in the backward pass."""

    def forward(self, tokens, cu_seqlens=None):
        x = self.embed(tokens)
        total = x.cumsum(1)
        if cu_seqlens is None:
            return self.out(total * self.scale)
        starts = cu_seqlens[:-1].long()
        padded = F.pad(total, (0, 0, 1, 0))
        before = padded[:, starts]
        if self.fault is not None:
            # The gradient no longer stops at the start of a sequence.
            before = before.detach()
        positions = torch.arange(x.shape[1])
        sequence = torch.bucketize(positions, starts, right=True) - 1
        of_sequence = total - before[:, sequence]
        return self.out(of_sequence * self.scale)


def test_sequences_in_one_row_are_compared():
    right = Packed("x")
    wrong = Packed("x", FAULTS["sign"])
    assert faults_of(right) == ()
    fault = faults_of(wrong)[0]
    assert "packed in one row" in fault


class Ragged(Layer):
    """Reads the lengths; a fault is in the short sequences."""

    def forward(self, tokens, lengths):
        x = self.embed(tokens)
        size = x.shape[1]
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = self.inner(packed)
        h, _ = rnn.pad_packed_sequence(outputs, batch_first=True, total_length=size)
        # Full sequences are right.
        short = (lengths < size)[:, None, None]
        spoiled = self.spoil(h, "y")
        return self.out(torch.where(short, spoiled, h))


def test_lengths_are_compared():
    right = Ragged("gru")
    wrong = Ragged("gru", FAULTS["a hundredth"], "y")
    assert faults_of(right) == ()
    fault = faults_of(wrong)[0]
    assert "different lengths" in fault


def test_a_model_without_trained_weights_has_no_gradient():
    found = audit("ngram_count", length=9, gradients=True)
    assert found.faults == ()
    assert found.gradients == {}
    assert found.notes == ("no parameter is trained: it has no gradient",)
