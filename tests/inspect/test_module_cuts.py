"""Cuts of modules that were not written for this: what is found, what is one function, training."""

import copy
import dataclasses
import random

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from lmzoo import zoo
from lmzoo.base.equations import cut_names
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.inspect.module_cuts import apply_cut, cuts

V, T = 11, 6
TOKENS = torch.randint(V, (4, T), generator=torch.Generator().manual_seed(1))


class Scored(nn.Module):
    """A row of the zoo as a module with a forward pass."""

    def __init__(self, row: str, **fields) -> None:
        super().__init__()
        self.m = zoo.build(zoo.config(row, width=8, **fields), Task(V, T), seed=0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.m.log_prob(tokens, torch.full((len(tokens),), T))


class RecurrentLM(nn.Module):
    def __init__(self, kind=nn.LSTM) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(V, 8), kind(8, 8, batch_first=True)
        self.readout = nn.Linear(8, V)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.readout(self.cell(self.embedding(tokens))[0])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.embedding, self.readout = nn.Embedding(V, 8), nn.Linear(8, V)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.readout(self.layers(self.embedding(tokens), mask=mask, is_causal=True))


def spellings(module: nn.Module) -> set[str]:
    return {name for cut in cuts(module, TOKENS) for name in (cut.name, *cut.aliases)}


def trains(module: nn.Module, name: str, read=lambda output: output) -> None:
    """Train a cut module for some steps: its loss falls, what is held stays zero."""
    changed = copy.deepcopy(module).train()
    apply_cut(changed, name)
    optimiser = torch.optim.AdamW(changed.parameters(), 0.02)
    losses = []
    for _ in range(12):
        optimiser.zero_grad()
        logits = read(changed(TOKENS))[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten())
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], name
    kind, _, path = name.partition(" ")
    if kind == "hold":
        weight, _, part = path.removesuffix("]").partition("[")
        parts = changed.get_parameter(weight)
        if part:
            number, count = map(int, part.split("/"))
            parts = parts.chunk(count)[number - 1]
        assert not parts.any()


WEIGHTS = ("input_to", "state_to")


@pytest.mark.parametrize(
    ("row", "cell", "found"),
    [("DLM46", "mgu", (*WEIGHTS, "gate_bias", "candidate_bias")), ("gru", "gru", WEIGHTS)],
)
def test_every_cut_of_a_weight_that_the_zoo_names_is_found(row, cell, found) -> None:
    """A GRU stacks the weights of its three gates."""
    whole = Scored(row).eval()
    outputs = []
    for cut in cuts(whole, TOKENS):
        changed = copy.deepcopy(whole)
        apply_cut(changed, cut.name)
        outputs.append(changed(TOKENS))
    for number, name in enumerate(cut_names(cell)):
        own = Scored(row, cell={"cuts": [number]}).eval()(TOKENS)
        seen = any(torch.allclose(own, output, atol=1e-6) for output in outputs)
        assert seen == name.startswith(found), name


def test_a_transformer_has_its_sublayers_and_its_norms() -> None:
    module = Transformer()
    found = spellings(module)
    for layer in range(2):
        at = f"layers.layers.{layer}"
        for name in ("self_attn", "linear1", "linear2"):
            assert f"zero {at}.{name}" in found
        assert {f"identity {at}.norm1", f"identity {at}.norm2", f"identity {at}"} <= found
    own = {cut.name: cut.aliases for cut in cuts(module, TOKENS)}
    for name in own:
        if name != "hold embedding.weight":
            trains(module, name)


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3)])
def test_a_recurrent_layer_has_its_gates(kind, gates) -> None:
    module = RecurrentLM(kind)
    found = spellings(module)
    for weight in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
        expected = {f"hold cell.{weight}[{gate}/{gates}]" for gate in range(1, gates + 1)}
        assert expected <= found, weight
    for cut in cuts(module, TOKENS):
        trains(module, cut.name)


def test_an_attention_has_the_parts_that_it_stacks() -> None:
    attention = "layers.layers.0.self_attn.in_proj_weight"
    assert f"hold {attention}[3/3]" in spellings(Transformer())
    assert not any("linear1.weight[" in name for name in spellings(Transformer()))


def test_what_changes_nothing_or_is_the_same_function_is_listed_once() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.unused = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
            self.none = nn.Identity()

        def forward(self, x):
            return self.none(self.b(self.a(x)) + x)

    torch.manual_seed(0)
    found = cuts(Own(), torch.randn(5, 3))
    assert not any("unused" in cut.name for cut in found)
    assert not any(cut.name == "identity none" for cut in found)
    by_name = {cut.name: cut.aliases for cut in found}
    assert len(by_name) == len(found)
    same = [{name, *aliases} for name, aliases in by_name.items()]
    assert any({"hold b.weight", "zero a"} <= own for own in same), "b's bias remains"
    assert {"hold a.weight"} in same, "a's bias passes through b"


def test_bad_cuts_and_inputs_are_one_line() -> None:
    with pytest.raises(UserError, match="no cut 'zero readuot' of this module; near: zero readout"):
        apply_cut(RecurrentLM(), "zero readuot")
    with pytest.raises(UserError, match=r"the module fails on these inputs: .*Float"):
        cuts(RecurrentLM(), torch.randn(2, 2))
    with pytest.raises(UserError, match="no parameter that is trained"):
        cuts(RecurrentLM().requires_grad_(False), TOKENS)  # noqa: FBT003


@pytest.mark.parametrize("part", ["0/4", "5/4", "1/0", "1/7"])
def test_a_part_that_is_not_there_is_one_line(part: str) -> None:
    with pytest.raises(UserError, match=r"no part . of . of 'cell.weight_hh_l0', which has"):
        apply_cut(RecurrentLM(), f"hold cell.weight_hh_l0[{part}]")


class Refuses(nn.Module):
    """Raises an error of its own where a part of it is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.readout = nn.Embedding(V, 8), nn.Linear(8, V)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs = self.embedding(tokens)
        assert bool(inputs.any()), "no inputs"
        return self.readout(inputs)


def test_a_cut_on_which_a_module_raises_is_left_out() -> None:
    assert [cut.name for cut in cuts(Refuses(), TOKENS)] == [
        "hold readout.weight", "hold readout.bias",
    ]  # fmt: skip


def test_a_cut_that_stops_all_gradients_is_left_out() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.inner = nn.Embedding(V, 8), nn.Linear(8, 8, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.inner(self.embedding(tokens)) @ self.embedding.weight.T

    assert [cut.name for cut in cuts(Tied(), TOKENS)] == ["identity inner"]


@pytest.mark.parametrize("kind", ["GPT2", "Llama"])
def test_a_model_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = dict(vocab_size=V, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    if kind == "Llama":
        config = transformers.LlamaConfig(**sizes, intermediate_size=16)
    else:
        config = transformers.GPT2Config(**sizes, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0)
    module = transformers.AutoModelForCausalLM.from_config(config)
    parts = ("transformer.h", "attn") if kind == "GPT2" else ("model.layers", "self_attn")
    found = spellings(module)
    for layer in range(2):
        at = f"{parts[0]}.{layer}"
        assert {f"zero {at}.{parts[1]}", f"zero {at}.mlp", f"identity {at}"} <= found
    for cut in cuts(module, TOKENS):
        trains(module, cut.name, lambda output: output.logits)


class Own(nn.Module):
    """A module around one layer, whose call a test replaces."""

    def __init__(self, layer: nn.Module | None = None, call=None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.layer = nn.Embedding(V, 8), layer or nn.Linear(8, 8)
        self.readout, self.call = nn.Linear(8, V), call or (lambda m, x: m.layer(x))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.readout(self.call(self, self.embedding(tokens)))


class Silent(Own):
    def train(self, mode=True) -> None:  # noqa: FBT002
        super().train(mode)


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor


class Named(Own):
    def forward(self, tokens: torch.Tensor) -> Answer:
        return Answer(super().forward(tokens))


class Overwrites(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(x.detach().sigmoid())


def test_the_identity_of_a_module_that_overwrites_its_input() -> None:
    for layer in (nn.ReLU(inplace=True), Overwrites()):
        module = Own(layer, lambda m, x: m.layer(x + 1) + x)
        assert "identity layer" in spellings(module)
        changed = copy.deepcopy(module)
        apply_cut(changed, "identity layer")
        x = module.embedding(TOKENS)
        assert torch.allclose(changed(TOKENS), module.readout(2 * x + 1))


@pytest.mark.filterwarnings("ignore")
def test_modules_of_others_have_right_cuts() -> None:
    class Projected(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.embedding = nn.Embedding(V, 8)
            self.cell = nn.LSTM(8, 8, proj_size=size, batch_first=True)
            self.readout = nn.Linear(size, V)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.readout(self.cell(self.embedding(tokens))[0])

    for size in (4, 6):
        found = spellings(Projected(size))
        assert "hold cell.weight_hr_l0" in found
        assert not any("weight_hr_l0[" in name for name in found)
    tied = Own()
    tied.readout.weight = tied.embedding.weight
    wave = nn.Parameter(torch.polar(torch.ones(8), torch.arange(8.0)))
    rotated = Own(call=lambda m, x: (m.layer(x) * m.wave).imag)
    rotated.wave = wave
    checkpoint = torch.utils.checkpoint.checkpoint
    for module, name in (
        (tied, "hold embedding.weight"),
        (rotated, "hold wave"),
        (Own(nn.LazyLinear(8)), "hold layer.weight"),
        (Own(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))), "zero layer"),
        (Own(nn.utils.weight_norm(nn.Linear(8, 8))), "hold layer.weight_g"),
        (Own(nn.utils.spectral_norm(nn.Linear(8, 8))), "zero layer"),
        (Own(call=lambda m, x: checkpoint(m.layer, x, use_reentrant=True)), "identity layer"),
        (Silent(), "identity layer"),
        (Named(), "identity layer"),
    ):
        before = torch.get_rng_state()
        assert name in spellings(module)
        assert torch.get_rng_state().equal(before)


@pytest.mark.filterwarnings("ignore")
def test_a_module_without_one_answer_is_refused_in_one_line() -> None:
    calls = []
    for module, message in (
        (Own(call=lambda m, x: nn.functional.dropout(m.layer(x))), "two equal calls"),
        (Own(call=lambda m, x: calls.append(1) or m.layer(x) * len(calls)), "two equal calls"),
        (Own(call=lambda m, x: m.layer(x) * random.random()), "two equal calls"),
        (Own(nn.LazyConv1d(8, 3)), "fails on these inputs"),
    ):
        with pytest.raises(UserError, match=message) as error:
            cuts(module, TOKENS)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="has no shape"):
        apply_cut(Own(nn.LazyLinear(8)), "hold layer.weight")
