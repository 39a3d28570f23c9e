"""`audit --gradients` finds planted faults of backward passes, and no fault in right modules."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import lmzoo
from lmzoo import zoo
from lmzoo.functional import (
    linear_recurrence,
    matrix_state,
    selective_scan,
    sphere,
    tied_softmax,
    token_mixture,
)
from lmzoo.kernels import scan
from lmzoo.laws.audit import audit

V, D, T = 11, 8, 33
Fault = Callable[[Tensor], Tensor]


def without_last(g: Tensor) -> Tensor:
    return torch.cat([g[..., :-1], torch.zeros_like(g[..., -1:])], -1)


def by_batch(g: Tensor) -> Tensor:
    return g / len(g) if g.dim() > 2 else g * 1.01


def only_long(g: Tensor) -> Tensor:
    return g * 1.5 if g.shape[-2] > 16 else g


FAULTS: dict[str, Fault] = {
    "16 times": lambda g: g * 16,
    "a hundredth": lambda g: g * 1.01,
    "sign": lambda g: -g,
    "no gradient": torch.zeros_like,
    "without the last": without_last,
    "by the batch": by_batch,
    "only of long ones": only_long,
    "shifted": lambda g: g.roll(1, -2),
    "one entry": lambda g: g.index_fill(g.dim() - 1, torch.tensor([0]), 0.0),
}


class Spoil(torch.autograd.Function):
    """The identity, with a fault in its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fault: Fault) -> Tensor:
        ctx.fault = fault
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return ctx.fault(upstream[0]), None


class Norm(torch.autograd.Function):
    """y = x / rms(x), with its own backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        scale = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        x, scale = ctx.saved_tensors
        g = upstream[0]
        return scale * g - x * scale**3 * (g * x).mean(-1, keepdim=True)


class Linear(torch.autograd.Function):
    """h_t = a h_{t−1} + x_t, with its own backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor) -> Tensor:
        h = torch.zeros_like(x)
        for t in range(x.shape[1]):
            h[:, t] = x[:, t] + (a * h[:, t - 1] if t else 0)
        ctx.save_for_backward(h, a)
        return h

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        h, a = ctx.saved_tensors
        g = upstream[0].clone()
        for t in range(g.shape[1] - 1, 0, -1):
            g[:, t - 1] += a * g[:, t]
        return g, (g[:, 1:] * h[:, :-1]).sum((0, 1))


class Layer(nn.Module):
    """A layer of another library between an embedding and logits; `fault` spoils a gradient."""

    def __init__(self, kind: str, fault: Fault | None = None, at: str = "x") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.fault, self.at = kind, fault, at
        self.embed = nn.Embedding(V, D, padding_idx=0 if kind == "padding" else None)
        self.out, self.mix = nn.Linear(D, V), nn.Linear(D, D)
        self.scale = nn.Parameter(torch.rand(D))
        self.inner: Any = {
            "gru": lambda: nn.GRU(D, D, batch_first=True),
            "lstm": lambda: nn.LSTM(D, D, batch_first=True, num_layers=2, dropout=0.3),
            "rnn": lambda: nn.RNN(D, D, batch_first=True),
            "attention": lambda: nn.MultiheadAttention(D, 2, batch_first=True),
            "transformer": lambda: nn.TransformerEncoderLayer(D, 2, 16, batch_first=True),
            "conv": lambda: nn.Conv1d(D, D, 4),
            "layer norm": lambda: nn.LayerNorm(D),
            "batch norm": lambda: nn.BatchNorm1d(D),
            "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(D, D)),
            "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(D, D)),
            "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(D, D)),
        }.get(kind, nn.Identity)()
        if kind in ("max norm", "frequency"):
            options = {"max_norm": 1.0} if kind == "max norm" else {"scale_grad_by_freq": True}
            self.embed = nn.Embedding(V, D, **options)
        if kind == "tied":
            self.out.weight = self.embed.weight
        if kind == "complex":
            self.phase = nn.Parameter(torch.polar(torch.ones(D), torch.linspace(0.1, 1.5, D)))

    def spoil(self, x: Tensor, at: str) -> Tensor:
        return x if self.fault is None or at != self.at else Spoil.apply(x, self.fault)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.spoil(self.embed(tokens), "x")
        w = self.spoil(self.mix.weight, "w")
        x = self.layer(F.linear(x, w, self.mix.bias))
        return self.out(self.spoil(x, "y"))

    def layer(self, x: Tensor) -> Tensor:
        kind, scale, causal = (
            self.kind,
            self.scale,
            torch.full((x.shape[1],) * 2, -torch.inf).triu(1),
        )
        if kind in ("gru", "lstm", "rnn"):
            return self.inner(x)[0]
        if kind == "attention":
            return self.inner(x, x, x, attn_mask=causal.to(x), need_weights=False)[0]
        if kind == "transformer":
            return self.inner(x, src_mask=causal.to(x))
        if kind == "conv":
            return self.inner(F.pad(x.mT, (3, 0))).mT
        if kind == "batch norm":
            return self.inner(x.mT).mT
        if kind == "complex":
            return (x.to(self.phase) * self.phase).imag
        return {
            "rms norm": lambda: Norm.apply(x) * scale,
            "recurrence": lambda: Linear.apply(x, scale.sigmoid()),
            "swiglu": lambda: F.silu(x * scale) * x,
            "linear attention": lambda: (x.unsqueeze(-1) * x.unsqueeze(-2)).cumsum(1) @ scale,
            "cumulative maximum": lambda: x.cummax(1).values * scale,
            "relu": lambda: F.relu(x) * scale,
            "hard": lambda: F.hardtanh(x * 3) + F.leaky_relu(x) * scale,
            "gather": lambda: x[:, torch.arange(x.shape[1]).clamp(min=1) - 1] * scale,
            "checkpoint": lambda: torch.utils.checkpoint.checkpoint(
                lambda y: F.gelu(y * scale), x, use_reentrant=False
            ),
            "dropout": lambda: F.dropout(x, 0.4, self.training) * scale,
            "single": lambda: (x.float() * scale.float()).softmax(-1).to(x),
        }.get(kind, lambda: self.inner(x))()  # fmt: skip


def faults_of(model: nn.Module) -> tuple[str, ...]:
    return audit(model, V, T, logits=True, gradients=True).wrong_gradients


RIGHT = (
    "gru", "lstm", "rnn", "attention", "transformer", "conv", "layer norm", "batch norm",
    "spectral norm", "weight norm", "orthogonal", "tied", "padding", "complex", "rms norm",
    "recurrence", "swiglu", "linear attention", "cumulative maximum", "relu", "hard", "gather",
    "checkpoint", "dropout", "single", "max norm", "frequency",
)  # fmt: skip
ROWS = ("gru", "DLM46", "gated_deltanet", "mamba", "lru", "word2vec_cbow")


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_module_has_no_fault(kind: str) -> None:
    assert faults_of(Layer(kind)) == ()


@pytest.mark.parametrize("row", ROWS)
def test_our_kernels_have_no_fault(row: str) -> None:
    found = audit(zoo.config(row, width=8), length=T, gradients=True)
    assert found.faults == ()
    assert len(found.gradients) == 4


PLANTED = [
    (kind, fault, at)
    for kind, faults in {
        "gru": (("16 times", "x"), ("by the batch", "y")),
        "lstm": (("only of long ones", "x"), ("one entry", "w")),
        "attention": (("without the last", "y"), ("a hundredth", "x")),
        "transformer": (("16 times", "w"), ("shifted", "y")),
        "conv": (("shifted", "x"), ("sign", "w")),
        "layer norm": (("no gradient", "w"), ("one entry", "x")),
        "rms norm": (("a hundredth", "w"), ("by the batch", "x")),
        "recurrence": (("only of long ones", "y"), ("without the last", "x")),
        "swiglu": (("sign", "y"), ("shifted", "w")),
        "linear attention": (("no gradient", "x"), ("16 times", "y")),
    }.items()
    for fault, at in faults
]
KERNELS: list[tuple[str, Any, int]] = [
    ("gru", scan._Scan, 0),
    ("gru", tied_softmax._TiedSoftmax, 0),
    ("DLM46", token_mixture._Mixture, 0),
    ("DLM46", sphere._Project, 0),
    ("gated_deltanet", matrix_state._Scan, 0),
    ("mamba", selective_scan._Scan, 0),
    ("lru", linear_recurrence._Recurrence, 0),
]


@pytest.mark.parametrize(("kind", "fault", "at"), PLANTED)
def test_a_planted_fault_of_a_foreign_layer_is_found(kind: str, fault: str, at: str) -> None:
    found = faults_of(Layer(kind, FAULTS[fault], at))
    assert found
    assert found[0].startswith("gradient: the backward pass of ")


def planted(function: Any, output: int, fault: Fault) -> Callable[..., Any]:
    """Return the backward pass of a kernel with a fault in one of its gradients."""
    right = function.backward

    def backward(ctx: Any, *upstream: Tensor) -> Any:
        given = right(ctx, *upstream)
        found = [given] if isinstance(given, Tensor) else [*given]
        known = [i for i, g in enumerate(found) if isinstance(g, Tensor)]
        found[known[output]] = fault(found[known[output]])
        return found[0] if isinstance(given, Tensor) else tuple(found)

    return backward


@pytest.mark.parametrize("place", range(20))
def test_a_planted_fault_of_a_kernel_is_found(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row, function, output = KERNELS[place % len(KERNELS)]
    fault = [*FAULTS.values()][(place * 5 + place // len(KERNELS)) % len(FAULTS)]
    monkeypatch.setattr(function, "backward", staticmethod(planted(function, output, fault)))
    assert audit(zoo.config(row, width=8), length=18, gradients=True).wrong_gradients


def test_sequences_in_one_row_and_lengths_are_compared() -> None:
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
            own = torch.bucketize(torch.arange(x.shape[1]), starts, right=True) - 1
            return self.out((total - before[:, own]) * self.scale)

    assert faults_of(Packed("x")) == ()
    assert "packed in one row" in faults_of(Packed("x", FAULTS["sign"]))[0]

    class Ragged(Layer):
        def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
            x = self.embed(tokens)
            packed = nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            h, _ = nn.utils.rnn.pad_packed_sequence(
                self.inner(packed)[0], batch_first=True, total_length=x.shape[1]
            )
            short = (lengths < x.shape[1])[:, None, None]
            return self.out(torch.where(short, self.spoil(h, "y"), h))

    assert faults_of(Ragged("gru")) == ()
    assert "different lengths" in faults_of(Ragged("gru", FAULTS["a hundredth"], "y"))[0]


def test_what_build_returns_is_audited() -> None:
    model = lmzoo.build("rnn_lm", "iid", width=4)
    assert audit(model, length=9) == audit(model.module, length=9)


def test_a_model_without_trained_weights_has_no_gradient() -> None:
    found = audit("ngram_count", length=9, gradients=True)
    assert (found.faults, found.gradients) == ((), {})
    assert found.notes == ("no parameter is trained: it has no gradient",)
