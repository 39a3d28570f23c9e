"""Functions, torch modules and models of transformers are audited by the probes of the zoo."""

import importlib.util
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import prune

import lmzoo
from lmzoo.base.errors import UserError

V = 11
Call = Callable[..., Any]


class Net(nn.Module):
    """An LSTM with a layer before its scores, whose call a test replaces."""

    def __init__(self, layer: Any = None, call: Call | None = None, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(V, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, **options)
        self.layer, self.call = layer or nn.Identity(), call or (lambda m, x: m.layer(x))
        self.output = nn.Linear(16 if options else 8, V)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.lstm(self.call(self, self.embedding(tokens)))[0])


class Normalised(Net):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).log_softmax(-1)


def counts(*, always: bool) -> Normalised:
    """Return a causal model whose buffer changes with each call, in training or always."""

    def call(module: Any, x: Tensor) -> Tensor:
        if module.training or always:
            module.count += 0.1
        return x * (1 + module.count)

    model = Normalised(call=call)
    model.register_buffer("count", torch.zeros(()))
    return model


def rotated(*, leaks: bool) -> Normalised:
    """Return a model with the imaginary part of a rotation, which may mix in later positions."""

    def call(module: Any, x: Tensor) -> Tensor:
        if leaks:
            later = x.mean(1, keepdim=True).expand_as(x)
        else:
            later = torch.zeros_like(x)
        return (torch.complex(x, later) * module.turn).imag

    model = Normalised(call=call)
    model.register_buffer("turn", torch.polar(torch.ones(8), torch.arange(8.0)))
    return model


class Silent(Normalised):
    def train(self, mode: bool = True) -> Any:  # noqa: FBT001, FBT002
        super().train(mode)
        if mode and isinstance(self.layer, nn.Tanh):
            raise RuntimeError("for inference only")


def uniform(tokens: Tensor) -> Tensor:
    return torch.full((*tokens.shape, V), -math.log(V))


def uniform_scores(tokens: Tensor, lengths: Tensor) -> Tensor:
    return torch.full((len(tokens), tokens.shape[1] - 1), -math.log(V))


def peeks(x: Tensor, where: Tensor) -> Tensor:
    """Return log-probabilities that read the next token in some places."""
    read = F.pad(where * x[:, 1:], (0, 1))
    return (read[..., None] * TOKENS).log_softmax(-1)


TOKENS = torch.arange(V, dtype=torch.float64)
PLACES = torch.arange(1, 65)
NOTHING = torch.zeros(())
MASK = nn.Parameter(torch.ones(20, 20).tril() > 0, requires_grad=False)
RIGHT: dict[str, Call] = {
    "a function": lambda: uniform,
    "a function of tokens and lengths": lambda: uniform_scores,
    "one of several outputs": lambda: lambda x: [NOTHING, uniform(x), NOTHING],
    "rounding": lambda: lambda x: (uniform(x) + 2e-7 * x.shape[1] * TOKENS).log_softmax(-1),
    "a named one": lambda: lambda x: {"loss": NOTHING, "h": torch.ones(2, 3), "logits": uniform(x)},
    "a buffer of training": lambda: counts(always=False),
    "spectral norm": lambda: Normalised(nn.utils.spectral_norm(nn.Linear(8, 8))),
    "complex weights": lambda: rotated(leaks=False),
    "a lazy layer": lambda: Normalised(nn.LazyLinear(8)),
    "pruned weights": lambda: Normalised(prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.3)),
    "a frozen mask": lambda: Normalised(
        nn.ParameterList([MASK]), lambda m, x: m.layer[0][: x.shape[1], : x.shape[1]].to(x) @ x
    ),
    "changed tokens": lambda: lambda x: F.one_hot(x.add_(1) % V, V).double().log_softmax(-1),
    "train() without a result": Silent,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", RIGHT)
def test_a_normalised_causal_model_passes(kind):
    model = RIGHT[kind]()
    found = lmzoo.audit(model, V, 20)
    assert (found.faults, found.notes) == ((), ())
    assert (found.deviations["pads"] is None) == (model is not uniform_scores)


@pytest.mark.parametrize(
    ("model", "probe"),
    [
        (Normalised(bidirectional=True), "future"),
        (rotated(leaks=True), "future"),
        (lambda x: peeks(x, x[:, 1:] == 9), "future"),
        (lambda x, n: peeks(x, PLACES[: x.shape[1] - 1] < (n * (n < 65))[:, None]), "future"),
        (lambda x: peeks(x, torch.arange(1, x.shape[1]) == 12), "future"),
        (Normalised(nn.BatchNorm1d(8), lambda m, x: m.layer(x.mT).mT), "mates"),
        (Net(), "itself"),
        (lambda tokens: torch.where(tokens == 3, -0.1, -math.log(V)), "itself"),
        (lambda tokens: uniform(tokens) + tokens.shape[1], "steps"),
        (counts(always=True), "again"),
    ],
)
def test_a_fault_is_detected_by_its_probe(model, probe):
    found = lmzoo.audit(model, V)
    deviation: Any = found.deviations[probe]
    assert deviation > found.tolerance
    assert found.faults


@pytest.mark.parametrize(
    ("model", "note"),
    [
        (Normalised(call=lambda m, x: F.dropout(x, 0.1)), "random in evaluation"),
        (Normalised(nn.RReLU()), "not compared in training: its tokens decide how many random"),
    ],
)
def test_a_model_that_draws_random_numbers_is_named(model, note):
    found = lmzoo.audit(model, V, 20)
    assert found.deviations["future"] == 0 or "evaluation" in note
    assert found.notes[0].startswith(note)
    assert (found.deviations["steps"] is None) == ("evaluation" in note)


def test_the_weights_of_the_model_stay():
    model = Net()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert lmzoo.audit(model, V, logits=True).faults == ()
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items())
    assert model.training


def test_rows_and_models_of_the_zoo_are_subjects():
    built = lmzoo.build("rnn_lm", "iid", width=4)
    assert lmzoo.audit(built, length=9) == lmzoo.audit(built.module, length=9)
    for model in ("rnn_lm", built, lmzoo.zoo.config("ngram_count")):
        assert lmzoo.audit(model, length=12).faults == ()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model", "vocab", "message"),
    [
        (uniform, None, "give the size of the vocabulary"),
        (3, V, "3 is no model"),
        (lambda tokens: tokens.float()[..., None, None], V, "returns a tensor of shape"),
        (uniform, V + 1, f"returns (2, 65, {V})"),
        (lambda tokens: tokens[:, 70], V, "fails on tokens of shape (2, 65): IndexError"),
        (lambda tokens: None, V, "returns NoneType; expected a tensor"),
        (Silent(nn.Tanh()), V, "(2, 65) in training: RuntimeError: for inference only"),
        (nn.Embedding(V, V, device="meta"), V, "on the device meta"),
        (Normalised(call=lambda m, x: F.rrelu(x, training=True)), V, "nothing can be compared"),
        (Normalised(nn.LazyBatchNorm1d()), V, "call the lazy module once before"),
        (lambda tokens: uniform(tokens) * math.nan, V, "the model returns NaN"),
    ],
)
def test_a_wrong_model_is_an_error_of_one_line(model, vocab, message):
    with pytest.raises(UserError) as caught:
        lmzoo.audit(model, vocab)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


FILE = """
from tests.laws.test_gradients import FAULTS, Layer
from tests.laws.test_subjects import Net, uniform
wrong, right = Layer('gru', FAULTS['16 times']), Layer('gru')
class Sized(Net):
    def __init__(self, size): super().__init__()
class Fails(Net):
    def __init__(self): raise RuntimeError("no weights")
class Exits(Net):
    def __init__(self): exit(3)
text = "gru"
"""


def test_the_command_audits_a_file(tmp_path, monkeypatch, lmzoo):
    file = tmp_path / "audited_file.py"
    file.write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    sizes = ("--vocab", V, "--length", 20)
    code, out, _ = lmzoo("audit", f"{file}:uniform", f"{file}:Net", *sizes, "--json")
    passes, fails = json.loads(out)
    assert code == 1
    assert (passes["faults"], len(fails["faults"])) == ([], 1)
    for name, expected, words in (
        ("Net", 0, ""),
        ("right", 0, ""),
        ("wrong", 1, "the backward pass of embed.weight gives"),
        ("nothing", 2, "has no 'nothing'"),
        ("Sized", 2, "Sized needs size; give an object instead"),
        ("Fails", 2, "Fails() fails: RuntimeError: no weights"),
        ("Exits", 2, "Exits() fails: SystemExit: 3"),
        ("text", 2, "is 'gru', no model: give a function"),
    ):
        gradients = ()
        if name.islower():
            gradients = ("--gradients",)
        code, out, err = lmzoo("audit", f"{file}:{name}", *sizes, "--logits", *gradients)
        assert (code, err.count("\n")) == (expected, int(expected == 2)), (name, out, err)
        assert words in " ".join((out + err).split())


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_models_of_transformers_pass(tmp_path, lmzoo):
    import transformers  # pyright: ignore[reportMissingImports]

    sizes = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"attn_layer_indices": [0], "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4}
    sizes |= {"intermediate_size": 16, "num_key_value_heads": 2, "max_position_embeddings": 64}
    for name in ("Llama", "GPTNeoX", "Bamba"):
        getattr(transformers, f"{name}Config")(**sizes).save_pretrained(tmp_path / name)
        code, out, _ = lmzoo("audit", f"hf:{tmp_path / name}", "--json")
        (found,) = json.loads(out)
        assert (code, found["faults"], found["length"]) == (0, [], 64)


@pytest.mark.parametrize("place", [70, 129, 200, 257, 297])
def test_a_leak_beyond_the_usual_chunks_is_found(place):
    def reads_later(_: Any, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, place : place + 1] += x[:, place + 1 : place + 2].sum(1, keepdim=True)
        return y

    assert lmzoo.audit(Net(call=reads_later), V, logits=True).faults
    assert not lmzoo.audit(Net(call=reads_later), V, length=65, logits=True).faults
