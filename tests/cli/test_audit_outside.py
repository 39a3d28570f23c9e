"""Functions, torch modules and models of transformers are audited by the probes of the zoo."""

import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lmzoo
from lmzoo.base.errors import UserError

V = 11


class Net(nn.Module):
    """An LSTM, or with `chunk` one that adds the mean of each complete chunk to its inputs."""

    def __init__(self, chunk: int = 0, both: bool = False, norm: bool = False) -> None:  # noqa: FBT001, FBT002
        super().__init__()
        self.chunk = chunk
        self.embedding = nn.Embedding(V, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, bidirectional=both)
        self.norm = nn.BatchNorm1d(8) if norm else None
        self.output = nn.Linear(16 if both else 8, V)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.norm is not None:
            x = self.norm(x.mT).mT
        if self.chunk and x.shape[1] >= self.chunk:
            parts = x[:, : x.shape[1] // self.chunk * self.chunk].unflatten(1, (-1, self.chunk))
            mean = parts.mean(2, keepdim=True).expand_as(parts).flatten(1, 2)
            x = x + nn.functional.pad(mean, (0, 0, 0, x.shape[1] - mean.shape[1]))
        return self.output(self.lstm(x)[0])


class Normalised(Net):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).log_softmax(-1)


def uniform(tokens: Tensor) -> Tensor:
    return torch.full((*tokens.shape, V), -math.log(V))


def uniform_scores(tokens: Tensor, lengths: Tensor) -> Tensor:
    return torch.full((len(tokens), tokens.shape[1] - 1), -math.log(V))


def reads_its_token(tokens: Tensor) -> Tensor:
    return torch.where(tokens == 3, -0.1, -math.log(V))


@pytest.mark.parametrize("model", [uniform, uniform_scores, Normalised()])
def test_a_normalised_causal_model_passes(model: Callable[..., Any]) -> None:
    found = lmzoo.audit(model, V)
    assert found.faults == ()
    assert (found.deviations["pads"] is None) == (model is not uniform_scores)


@pytest.mark.parametrize(
    ("model", "probe"),
    [
        (Normalised(both=True), "future"),
        (Normalised(chunk=16), "future"),
        (Normalised(norm=True), "mates"),
        (Net(), "itself"),
        (reads_its_token, "itself"),
        (lambda tokens: uniform(tokens) + tokens.shape[1], "steps"),
    ],
)
def test_a_fault_is_detected_by_its_probe(model: Callable[..., Any], probe: str) -> None:
    found = lmzoo.audit(model, V)
    assert found.deviations[probe] > found.tolerance
    assert found.faults


def test_a_chunk_is_detected_at_the_length_of_its_use() -> None:
    model = Normalised(chunk=64)
    assert lmzoo.audit(model, V, length=60).faults == ()
    assert lmzoo.audit(model, V, length=128).faults


def test_the_weights_of_the_model_stay() -> None:
    model = Net()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert lmzoo.audit(model, V, logits=True).faults == ()
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items())
    assert model.training


def test_rows_and_models_of_the_zoo_are_subjects() -> None:
    task = lmzoo.build("rnn_lm", "iid").module.task
    module = lmzoo.zoo.build(lmzoo.zoo.config("rnn_lm", width=4), task)
    for model in ("rnn_lm", module, lmzoo.zoo.config("ngram_count")):
        assert lmzoo.audit(model, length=12).faults == ()


@pytest.mark.parametrize(
    ("model", "vocab", "message"),
    [
        (uniform, None, "give the size of the vocabulary"),
        (3, V, "3 is no model"),
        (lambda tokens: tokens.float()[..., None, None], V, "returns a tensor of shape"),
        (uniform, V + 1, f"returns (2, 65, {V})"),
        (lambda tokens: tokens[:, 70], V, "fails on tokens of shape (2, 65)"),
        (lambda tokens: None, V, "returns NoneType; expected a tensor"),
    ],
)
def test_a_wrong_model_is_an_error_of_one_line(model: Any, vocab: int | None, message: str) -> None:
    with pytest.raises(UserError) as caught:
        lmzoo.audit(model, vocab)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_of_several_outputs_is_audited() -> None:
    def several(kind: str) -> Callable[[Tensor], Any]:
        def model(tokens: Tensor) -> Any:
            loss, scores = torch.zeros(()), uniform(tokens)
            return {
                "pair": (scores, loss),
                "loss first": [loss, scores],
                "named": {"loss": loss, "hidden": torch.zeros(2, 3), "logits": scores},
            }[kind]

        return model

    for kind in ("pair", "loss first", "named"):
        assert lmzoo.audit(several(kind), V, 8).faults == ()


def test_the_command_audits_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lmzoo: Any
) -> None:
    text = "import torch\nfrom tests.cli.test_audit_outside import Net, uniform\n"
    (tmp_path / "audited_file.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"{tmp_path / 'audited_file.py'}:{name}" for name in ("uniform", "Net")]
    code, out, _ = lmzoo("audit", *names, "--vocab", V, "--json")
    passes, fails = json.loads(out)
    assert code == 1
    assert (passes["faults"], len(fails["faults"])) == ([], 1)
    assert lmzoo("audit", names[1], "--vocab", V, "--logits")[0] == 0
    code, _, err = lmzoo("audit", f"{tmp_path / 'audited_file.py'}:nothing", "--vocab", V)
    assert (code, err.count("\n")) == (2, 1)


def test_the_command_says_which_gradient_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lmzoo: Any
) -> None:
    text = "from tests.laws.test_gradients import *\nwrong = Layer('gru', FAULTS['16 times'])\n"
    (tmp_path / "own_gradients.py").write_text(f"{text}right = Layer('gru')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    options: Any = ("--vocab", V, "--length", 20, "--logits", "--gradients")
    code, out, _ = lmzoo("audit", f"{tmp_path}/own_gradients.py:wrong", *options)
    assert (code, "backward" in out) == (1, True)
    assert "the backward pass of embed.weight gives" in out
    assert lmzoo("audit", f"{tmp_path}/own_gradients.py:right", *options)[0] == 0


class Buffered(Net):
    """A causal model whose buffer changes with each call, in training or always."""

    def __init__(self, always: bool = False) -> None:  # noqa: FBT001, FBT002
        super().__init__()
        self.always = always
        self.register_buffer("count", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training or self.always:
            self.count += 0.1
        return (super().forward(tokens) * (1 + self.count)).log_softmax(-1)


class Rotated(nn.Module):
    """Reads the imaginary part of a rotation; with `leak`, one that mixes in later positions."""

    def __init__(self, leak: bool = False) -> None:  # noqa: FBT001, FBT002
        super().__init__()
        self.embedding, self.output, self.leak = nn.Embedding(V, 8), nn.Linear(8, V), leak
        self.register_buffer("turn", torch.polar(torch.ones(8), torch.arange(8.0)))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        z = torch.complex(x, x.mean(1, keepdim=True).expand_as(x)) if self.leak else x.to(self.turn)
        return self.output((z * self.turn).imag).log_softmax(-1)


class Drops(Normalised):
    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(tokens).exp(), 0.1).log_softmax(-1)


@pytest.mark.filterwarnings("ignore")
def test_buffers_of_training_are_restored_and_kept_state_is_named() -> None:
    assert lmzoo.audit(Buffered(), V, 20).faults == ()
    spectral = Normalised()
    spectral.output = nn.utils.spectral_norm(spectral.output)
    assert lmzoo.audit(spectral, V, 20).faults == ()
    (fault,) = lmzoo.audit(Buffered(always=True), V, 20).faults
    assert fault.startswith("two equal calls differ by")


def test_complex_weights_stay_complex() -> None:
    assert lmzoo.audit(Rotated(), V, 20).faults == ()
    assert lmzoo.audit(Rotated(leak=True), V, 20).deviations["future"] > 1e-3


def test_a_model_that_is_random_in_evaluation_is_named() -> None:
    assert lmzoo.audit(Normalised(), V, 20).notes == ()
    assert lmzoo.audit(Drops(), V, 20).notes[0].startswith("random in evaluation")


@pytest.mark.filterwarnings("ignore")
def test_classes_and_modules_that_cannot_be_made_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lmzoo: Any
) -> None:
    text = """
import torch
from torch import nn
from tests.cli.test_audit_outside import Net, V
class Sized(Net):
    def __init__(self, size): super().__init__()
class Fails(Net):
    def __init__(self): raise RuntimeError("no weights")
class Silent(Net):
    def train(self, mode=True): super().train(mode)
lazy, old = Net(), Net()
lazy.output, old.output = nn.LazyLinear(V), nn.utils.weight_norm(nn.Linear(8, V))
"""
    (tmp_path / "audited_makes.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name, code, words in (
        ("Sized", 2, "Sized needs size; give an object instead"),
        ("Fails", 2, "Fails() fails: RuntimeError: no weights"),
        ("old", 0, ""),
        ("Silent", 0, ""),
        ("lazy", 0, ""),
    ):
        path = f"{tmp_path}/audited_makes.py:{name}"
        found, _, err = lmzoo("audit", path, "--vocab", V, "--length", 20, "--logits")
        assert (found, words in err, err.count("\n")) == (code, True, bool(code)), err


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_models_of_transformers_pass(tmp_path: Path, lmzoo: Any) -> None:
    import transformers  # pyright: ignore[reportMissingImports]

    sizes = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    for name in ("Llama", "GPTNeoX", "Mistral"):
        config = getattr(transformers, f"{name}Config")(
            **sizes, intermediate_size=16, num_key_value_heads=2, max_position_embeddings=64
        )
        config.save_pretrained(tmp_path / name)
        code, out, _ = lmzoo("audit", f"hf:{tmp_path / name}", "--json")
        (found,) = json.loads(out)
        assert (code, found["faults"], found["length"]) == (0, [], 64)
