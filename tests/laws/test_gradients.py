"""`audit --gradients` finds planted faults of backward passes, and no fault in right modules."""

from collections.abc import Callable
from typing import Any

import pytest
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
from tests.cases import cases

V = 11
D = 8
T = 33
Fault = Callable[[Tensor], Tensor]


def by_the_batch(gradient: Tensor) -> Tensor:
    if gradient.dim() > 2:
        return gradient / len(gradient)
    return gradient * 1.01


def only_of_long_ones(gradient: Tensor) -> Tensor:
    if gradient.shape[-2] > 16:
        return gradient * 1.5
    return gradient


def without_entry(gradient: Tensor, place: int) -> Tensor:
    """Return the gradient with zeros at one place of the last axis."""
    changed = gradient.clone()
    changed[..., place] = 0
    return changed


FAULTS: dict[str, Fault] = {
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
    def forward(ctx, x: Tensor, fault: Fault) -> Tensor:
        ctx.fault = fault
        return x.clone()

    @staticmethod
    def backward(ctx, *upstream: Tensor):
        return ctx.fault(upstream[0]), None


def causal(x: Tensor) -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(x.shape[1]).to(x)


def checkpoint(module, x: Tensor) -> Tensor:
    def scaled(y: Tensor) -> Tensor:
        return F.gelu(y * module.scale)

    return torch.utils.checkpoint.checkpoint(scaled, x, use_reentrant=False)


NORMS = nn.utils.parametrizations
Call = Callable[[Any, Tensor], Tensor]
FUNCTIONS: dict[str, Call] = {
    "complex": lambda m, x: (x.to(m.phase) * m.phase).imag,
    "plain": lambda m, x: x,
    "swiglu": lambda m, x: F.silu(x * m.scale) * x,
    "linear attention": lambda m, x: (x[..., None] * x[:, :, None]).cumsum(1) @ m.scale,
    "cumulative maximum": lambda m, x: x.cummax(1).values * m.scale,
    "relu": lambda m, x: F.relu(x) * m.scale,
    "dropout": lambda m, x: F.dropout(x, 0.4, m.training) * m.scale,
    "single": lambda m, x: (x.float() * m.scale.float()).softmax(-1).to(x),
    "checkpoint": checkpoint,
}
LAYERS: dict[str, tuple[Callable[[], nn.Module], Call]] = {
    "gru": (lambda: nn.GRU(D, D, batch_first=True), lambda m, x: m.inner(x)[0]),
    "lstm": (
        lambda: nn.LSTM(D, D, batch_first=True, num_layers=2, dropout=0.3),
        lambda m, x: m.inner(x)[0],
    ),
    "attention": (
        lambda: nn.MultiheadAttention(D, 2, batch_first=True),
        lambda m, x: m.inner(x, x, x, attn_mask=causal(x), need_weights=False)[0],
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(D, 2, 16, batch_first=True),
        lambda m, x: m.inner(x, src_mask=causal(x)),
    ),
    "conv": (lambda: nn.Conv1d(D, D, 4), lambda m, x: m.inner(F.pad(x.mT, (3, 0))).mT),
    "layer norm": (lambda: nn.LayerNorm(D), lambda m, x: m.inner(x)),
    "batch norm": (lambda: nn.BatchNorm1d(D), lambda m, x: m.inner(x.mT).mT),
    "spectral norm": (lambda: NORMS.spectral_norm(nn.Linear(D, D)), lambda m, x: m.inner(x)),
    "orthogonal": (lambda: NORMS.orthogonal(nn.Linear(D, D)), lambda m, x: m.inner(x)),
}
LAYERS |= {name: (nn.Identity, function) for name, function in FUNCTIONS.items()}
EMBEDDINGS: dict[str, dict[str, Any]] = {
    "padding": {"padding_idx": 0},
    "max norm": {"max_norm": 1.0},
    "frequency": {"scale_grad_by_freq": True},
    "tied": {},
}


class Layer(nn.Module):
    """A layer of another library between an embedding and logits; `fault` spoils a gradient."""

    def __init__(self, kind: str, fault: Fault | None = None, at: str = "x"):
        super().__init__()
        torch.manual_seed(0)
        self.fault = fault
        self.at = at
        self.embed = nn.Embedding(V, D, **EMBEDDINGS.get(kind, {}))
        self.out = nn.Linear(D, V)
        self.mix = nn.Linear(D, D)
        self.scale = nn.Parameter(torch.rand(D))
        inner, self.layer = LAYERS.get(kind, LAYERS["plain"])
        self.inner = inner()
        if kind == "tied":
            self.out.weight = self.embed.weight
        if kind == "complex":
            self.phase = nn.Parameter(torch.polar(torch.ones(D), torch.linspace(0.1, 1.5, D)))

    def spoil(self, x: Tensor, at: str) -> Tensor:
        if self.fault is None or at != self.at:
            return x
        return Spoil.apply(x, self.fault)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.spoil(self.embed(tokens), "x")
        x = F.linear(x, self.spoil(self.mix.weight, "w"), self.mix.bias)
        return self.out(self.spoil(self.layer(self, x), "y"))


def faults_of(model: nn.Module) -> tuple[str, ...]:
    return audit(model, V, T, logits=True, gradients=True).wrong_gradients


@pytest.mark.parametrize("kind", [*LAYERS, *EMBEDDINGS])
def test_a_right_module_has_no_fault(kind):
    assert faults_of(Layer(kind)) == ()


def assert_right_gradients(config, length: int):
    found = audit(config, length=length, gradients=True)
    assert found.faults == ()
    assert found.notes == ()
    assert len(found.gradients) == 4


ROWS = ["gru", "DLM46", "gated_deltanet", "mamba", "lru", "word2vec_cbow"]


@pytest.mark.parametrize("row", ROWS)
def test_our_kernels_have_no_fault(row):
    assert_right_gradients(zoo.config(row, width=8), T)


def test_a_kink_is_no_fault():
    """This model has one within 1e-7."""
    assert_right_gradients(zoo.config("set_transformer_causal"), 9)


@pytest.mark.parametrize("row", ["hard_attention", "hm_lstm", "gru_ternary_vae"])
def test_a_gradient_that_is_an_estimate_is_named(row):
    found = audit(zoo.config(row, width=8), length=9, gradients=True)
    assert found.faults == ()
    assert max(found.gradients.values()) > 1
    assert found.notes[0].startswith("the gradient is an estimate on purpose: ")


KERNELS: list[tuple[str, Any, str]] = [
    ("gru", scan._Scan, "16 times"),
    ("gru", tied_softmax._TiedSoftmax, "by the batch"),
    ("gated_deltanet", matrix_state._Scan, "sign"),
    ("mamba", selective_scan._Scan, "shifted"),
    ("lru", linear_recurrence._Recurrence, "no gradient"),
]


@cases("laws/cases.toml", "planted", "kind, fault, at")
def test_a_planted_fault_of_a_foreign_layer_is_found(kind, fault, at):
    found = faults_of(Layer(kind, FAULTS[fault], at))
    assert found
    assert found[0].startswith("gradient: the backward pass of ")


def planted(function, fault: Fault) -> Callable[..., Any]:
    """Return the backward pass of a kernel with a fault in its first gradient."""
    right = function.backward

    def backward(ctx, *upstream: Tensor):
        given = right(ctx, *upstream)
        if isinstance(given, Tensor):
            return fault(given)
        gradients = list(given)
        # Arguments that are no tensors have no gradient.
        first = [isinstance(gradient, Tensor) for gradient in gradients].index(True)
        gradients[first] = fault(gradients[first])
        return tuple(gradients)

    return backward


@pytest.mark.parametrize(("row", "function", "fault"), KERNELS)
def test_a_planted_fault_of_a_kernel_is_found(row, function, fault, monkeypatch):
    monkeypatch.setattr(function, "backward", staticmethod(planted(function, FAULTS[fault])))
    assert audit(zoo.config(row, width=8), length=18, gradients=True).wrong_gradients


class Packed(Layer):
    """Sums over each sequence; with a fault, over the whole row in the backward pass."""

    def forward(self, tokens: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        x = self.embed(tokens)
        total = x.cumsum(1)
        if cu_seqlens is None:
            return self.out(total * self.scale)
        starts = cu_seqlens[:-1].long()
        before = F.pad(total, (0, 0, 1, 0))[:, starts]
        if self.fault is not None:
            before = before.detach()
        positions = torch.arange(x.shape[1])
        sequence = torch.bucketize(positions, starts, right=True) - 1
        return self.out((total - before[:, sequence]) * self.scale)


def test_sequences_in_one_row_are_compared():
    assert faults_of(Packed("x")) == ()
    [fault, *_] = faults_of(Packed("x", FAULTS["sign"]))
    assert "packed in one row" in fault


class Ragged(Layer):
    """Reads the lengths; a fault is in the short sequences."""

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.embed(tokens)
        size = x.shape[1]
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = self.inner(packed)
        h, _ = rnn.pad_packed_sequence(outputs, batch_first=True, total_length=size)
        short = (lengths < size)[:, None, None]
        return self.out(torch.where(short, self.spoil(h, "y"), h))


def test_lengths_are_compared():
    assert faults_of(Ragged("gru")) == ()
    [fault, *_] = faults_of(Ragged("gru", FAULTS["a hundredth"], "y"))
    assert "different lengths" in fault


def test_a_model_without_trained_weights_has_no_gradient():
    found = audit("ngram_count", length=9, gradients=True)
    assert found.faults == ()
    assert found.gradients == {}
    assert found.notes == ("no parameter is trained: it has no gradient",)
