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
from tests.cases import rows

V = 11
Call = Callable[..., Any]


class Net(nn.Module):
    """An LSTM with a layer before its scores, whose call a test replaces."""

    def __init__(self, layer=None, call: Call | None = None, **options):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(V, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, **options)
        self.layer = layer or nn.Identity()
        self.call = call or (lambda m, x: m.layer(x))
        # Both directions of an LSTM have twice the width.
        width = 8
        if options:
            width = 16
        self.output = nn.Linear(width, V)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.call(self, self.embedding(tokens))
        h, _ = self.lstm(x)
        return self.output(h)


class Normalised(Net):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).log_softmax(-1)


def counts(*, always: bool) -> Normalised:
    """Return a causal model whose buffer changes with each call, in training or always."""

    def call(module, x: Tensor) -> Tensor:
        if module.training or always:
            module.count += 0.1
        return x * (1 + module.count)

    model = Normalised(call=call)
    model.register_buffer("count", torch.zeros(()))
    return model


def rotated(*, leaks: bool) -> Normalised:
    """Return a model with the imaginary part of a rotation, which may mix in later positions."""

    def call(module, x: Tensor) -> Tensor:
        later = torch.zeros_like(x)
        if leaks:
            later = x.mean(1, keepdim=True).expand_as(x)
        return (torch.complex(x, later) * module.turn).imag

    model = Normalised(call=call)
    model.register_buffer("turn", torch.polar(torch.ones(8), torch.arange(8.0)))
    return model


class Silent(Normalised):
    def train(self, mode: bool = True):  # noqa: FBT001, FBT002
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


def of_several(tokens: Tensor) -> list[Tensor]:
    return [NOTHING, uniform(tokens), NOTHING]


def named(tokens: Tensor) -> dict[str, Tensor]:
    return {"loss": NOTHING, "h": torch.ones(2, 3), "logits": uniform(tokens)}


def rounded(tokens: Tensor) -> Tensor:
    """Return scores that depend on the number of positions, as rounding does."""
    error = 2e-7 * tokens.shape[1] * TOKENS
    return (uniform(tokens) + error).log_softmax(-1)


def overwrites(tokens: Tensor) -> Tensor:
    following = tokens.add_(1) % V
    return F.one_hot(following, V).double().log_softmax(-1)


def masked(module, x: Tensor) -> Tensor:
    [mask] = module.layer
    size = x.shape[1]
    return mask[:size, :size].to(x) @ x


RIGHT: dict[str, Call] = {
    "a function": lambda: uniform,
    "a function of tokens and lengths": lambda: uniform_scores,
    "one of several outputs": lambda: of_several,
    "rounding": lambda: rounded,
    "a named one": lambda: named,
    "a buffer of training": lambda: counts(always=False),
    "spectral norm": lambda: Normalised(nn.utils.spectral_norm(nn.Linear(8, 8))),
    "complex weights": lambda: rotated(leaks=False),
    "a lazy layer": lambda: Normalised(nn.LazyLinear(8)),
    "pruned weights": lambda: Normalised(prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.3)),
    "a frozen mask": lambda: Normalised(nn.ParameterList([MASK]), masked),
    "changed tokens": lambda: overwrites,
    "train() without a result": Silent,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", RIGHT)
def test_a_normalised_causal_model_passes(kind):
    model = RIGHT[kind]()
    found = lmzoo.audit(model, V, 20)
    assert found.faults == ()
    assert found.notes == ()
    assert (found.deviations["pads"] is None) == (model is not uniform_scores)


def peeks_in_short_ones(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Read the next token in sequences that are shorter than 65."""
    short = torch.where(lengths < 65, lengths, 0)
    return peeks(tokens, PLACES[: tokens.shape[1] - 1] < short[:, None])


@pytest.mark.parametrize(
    ("model", "probe"),
    [
        (Normalised(bidirectional=True), "future"),
        (rotated(leaks=True), "future"),
        (lambda x: peeks(x, x[:, 1:] == 9), "future"),
        (peeks_in_short_ones, "future"),
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
    deviation = found.deviations[probe]
    assert deviation > found.tolerance
    assert found.faults


def test_a_model_that_is_random_in_evaluation_is_named():
    found = lmzoo.audit(Normalised(call=lambda m, x: F.dropout(x, 0.1)), V, 20)
    assert found.notes[0].startswith("random in evaluation")
    assert found.deviations["steps"] is None


def test_a_model_whose_tokens_decide_how_much_is_drawn_is_named():
    found = lmzoo.audit(Normalised(nn.RReLU()), V, 20)
    said = "not compared in training: its tokens decide how many random"
    assert found.notes[0].startswith(said)
    assert found.deviations["future"] == 0
    assert found.deviations["steps"] is not None


def test_the_weights_of_the_model_stay():
    model = Net()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert lmzoo.audit(model, V, logits=True).faults == ()
    assert model.training
    for name, weight in model.state_dict().items():
        assert weight.equal(before[name])


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


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a file of models, right and wrong; a process imports one file of its name."""
    file = tmp_path_factory.mktemp("audited") / "audited_file.py"
    file.write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(file.parent)
        patch.setenv("COLUMNS", "160")
        yield file


SIZES = ("--vocab", V, "--length", 20)


def test_the_command_audits_objects_of_a_file(file, lmzoo):
    code, out, _ = lmzoo("audit", f"{file}:uniform", f"{file}:Net", *SIZES, "--json")
    passes, fails = json.loads(out)
    assert code == 1
    assert passes["faults"] == []
    assert len(fails["faults"]) == 1


@pytest.mark.parametrize(
    ("name", "expected", "words"),
    [
        ("right", 0, ""),
        ("wrong", 1, "the backward pass of embed.weight gives"),
        ("nothing", 2, "has no 'nothing'"),
        ("Sized", 2, "Sized needs size; give an object instead"),
        ("Fails", 2, "Fails() fails: RuntimeError: no weights"),
        ("Exits", 2, "Exits() fails: SystemExit: 3"),
        ("text", 2, "is 'gru', no model: give a function"),
    ],
)
def test_the_command_says_what_it_found_in_a_file(file, lmzoo, name, expected, words):
    code, out, err = lmzoo("audit", f"{file}:{name}", *SIZES, "--logits", "--gradients")
    assert code == expected
    # Bad input is one line of stderr; a fault is an answer.
    assert err.count("\n") == int(expected == 2)
    assert words in " ".join((out + err).split())


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_models_of_transformers_pass(tmp_path, lmzoo):
    import transformers  # pyright: ignore[reportMissingImports]

    sizes = rows("laws/cases.toml", "transformers")
    for name in ("Llama", "GPTNeoX", "Bamba"):
        config = getattr(transformers, f"{name}Config")(vocab_size=V, **sizes)
        config.save_pretrained(tmp_path / name)
        code, out, _ = lmzoo("audit", f"hf:{tmp_path / name}", "--json")
        (found,) = json.loads(out)
        assert code == 0
        assert found["faults"] == []
        assert found["length"] == 64


@pytest.mark.parametrize("place", [70, 129, 200, 257, 297])
def test_a_leak_beyond_the_usual_chunks_is_found(place):
    def reads_later(_, x: Tensor) -> Tensor:
        y = x.clone()
        # A short sequence has no token at these places.
        y[:, place : place + 1] += x[:, place + 1 : place + 2].sum(1, keepdim=True)
        return y

    model = Net(call=reads_later)
    assert lmzoo.audit(model, V, logits=True).faults
    assert not lmzoo.audit(model, V, length=65, logits=True).faults
