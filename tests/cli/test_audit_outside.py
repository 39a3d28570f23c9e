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
