"""Cuts of modules that were not written for this: what is found, what is one function, training."""

import copy
import dataclasses
import functools
import random
import re
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn.utils import prune

from lmzoo import zoo
from lmzoo.base.docstrings import cut_names
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


class Own(nn.Module):
    """A module around one layer, whose call a test replaces."""

    def __init__(self, layer: Any = None, call: Any = None, width: int = 8, **more: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.layer = nn.Embedding(V, 8), layer or nn.Linear(8, 8)
        self.readout, self.call = nn.Linear(width, V), call or (lambda m, x: m.layer(x))
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.readout(self.call(self, self.embedding(tokens)))


def recurrent(kind: Any = nn.LSTM, width: int = 8, **options: Any) -> Own:
    cell = kind(8, 8, batch_first=True, **options)
    return Own(cell, lambda m, x: m.layer(x)[0], width)


def transformer() -> Own:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Own(layers, lambda m, x: m.layer(x, mask=mask, is_causal=True))


def spellings(module: nn.Module) -> set[str]:
    return {name for cut in cuts(module, TOKENS) for name in (cut.name, *cut.aliases)}


def cut_copy(module: nn.Module, name: str) -> nn.Module:
    changed = copy.deepcopy(module)
    apply_cut(changed, name)
    return changed


def trains(module: nn.Module, name: str, read=lambda output: output) -> None:
    """Train a cut module for some steps: its loss falls, what is held stays zero."""
    changed = cut_copy(module, name).train()
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
        held = changed.get_parameter(weight)
        if part:
            number, count = map(int, part.split("/"))
            held = held.chunk(count)[number - 1]
        assert not held.any()


@pytest.mark.parametrize(
    ("row", "cell", "seen"),
    [("DLM46", "mgu", ("input", "state", "gate", "candidate")), ("gru", "gru", ("input", "state"))],
)
def test_every_cut_of_a_weight_that_the_zoo_names_is_found(row, cell, seen):
    """Others are terms without a module, or parts of a bias; the GRU stacks three gates."""
    whole = Scored(row).eval()
    outputs = [cut_copy(whole, cut.name)(TOKENS) for cut in cuts(whole, TOKENS)]
    for number, name in enumerate(cut_names(cell)):
        own = Scored(row, cell={"cuts": [number]}).eval()(TOKENS)
        found = any(torch.allclose(own, output, atol=1e-6) for output in outputs)
        assert found == name.startswith(seen), name


LAYER = ("zero {}.self_attn", "zero {}.linear1", "zero {}.linear2", "identity {}.norm1")


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (transformer(), {f"{name}".format(f"layer.layers.{i}") for name in LAYER for i in (0, 1)}),
        (transformer(), {"hold layer.layers.0.self_attn.in_proj_weight[3/3]"}),
        (recurrent(), {f"hold layer.weight_ih_l0[{gate}/4]" for gate in range(1, 5)}),
        (recurrent(nn.GRU), {f"hold layer.bias_ih_l0[{gate}/3]" for gate in range(1, 4)}),
    ],
    ids=["layers", "heads", "LSTM", "GRU"],
)
def test_a_module_has_its_parts_and_trains_without_each(module, expected):
    found = spellings(module)
    assert expected <= found
    assert not any("linear1.weight[" in name for name in found)
    for cut in cuts(module, TOKENS) if len(expected) > 1 else ():
        if cut.name != "hold embedding.weight":
            trains(module, cut.name)


def test_what_changes_nothing_or_is_the_same_function_is_listed_once():
    own = Own(call=lambda m, x: m.none(m.b(m.layer(x)) + x), none=nn.Identity(), b=nn.Linear(8, 8))
    own.unused = nn.Linear(8, 8)
    found = cuts(own, TOKENS)
    assert not any("unused" in cut.name or cut.name == "identity none" for cut in found)
    same = [{cut.name, *cut.aliases} for cut in found]
    assert any({"hold b.weight", "zero layer"} <= names for names in same), "b's bias remains"
    assert {"hold layer.weight"} in same, "its bias passes through b"
    assert not cut_copy(tied(), "hold readout.weight").embedding.weight.any(), "its second name"


def test_cuts_on_which_a_module_fails_or_learns_nothing_are_left_out():
    def refuses(module: Any, x: torch.Tensor) -> torch.Tensor:
        assert bool(x.any()), "no inputs"
        return x

    names = [cut.name for cut in cuts(Own(nn.Identity(), refuses), TOKENS)]
    assert names == ["hold readout.weight", "hold readout.bias"]

    class Tied(Own):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.layer(self.embedding(tokens)) @ self.embedding.weight.T

    tied = Tied(nn.Linear(8, 8, bias=False))
    assert [cut.name for cut in cuts(tied, TOKENS)] == ["identity layer"]


@pytest.mark.parametrize("kind", ["GPT2", "Llama"])
def test_a_model_of_transformers(kind):
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


class Silent(Own):
    def train(self, mode=True) -> None:  # noqa: FBT002
        super().train(mode)


Answer = dataclasses.make_dataclass("Answer", ["logits"])


class Named(Own):
    def forward(self, tokens: torch.Tensor) -> Any:
        return Answer(super().forward(tokens))


class Overwrites(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(x.detach().sigmoid())


def test_the_identity_of_a_module_that_overwrites_its_input():
    for layer in (nn.ReLU(inplace=True), Overwrites()):
        module = Own(layer, lambda m, x: m.layer(x + 1) + x)
        assert "identity layer" in spellings(module)
        x = module.embedding(TOKENS)
        expected = module.readout(2 * x + 1)
        assert torch.allclose(cut_copy(module, "identity layer")(TOKENS), expected)


def tied() -> Own:
    module = Own()
    module.readout.weight = module.embedding.weight
    return module


def in_checkpoint(module: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(module.layer, x, use_reentrant=True)


WAVE = nn.Parameter(torch.polar(torch.ones(8), torch.arange(8.0)))
NORM = nn.utils.parametrizations.weight_norm


def normed(*args: Any, **options: Any) -> nn.Module:
    return NORM(nn.LSTM(*args, **options), "weight_hh_l0")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda: Own(call=lambda m, x: m.layer(input=x)), "identity layer"),
        (lambda: recurrent(width=6, proj_size=6), "hold layer.weight_hr_l0"),
        (tied, "hold embedding.weight"),
        (lambda: Own(call=lambda m, x: (m.layer(x) * m.wave).imag, wave=WAVE), "hold wave"),
        (lambda: Own(nn.LazyLinear(8)), "hold layer.weight"),
        (lambda: Own(NORM(nn.Linear(8, 8))), "zero layer"),
        (lambda: Own(nn.utils.weight_norm(nn.Linear(8, 8))), "hold layer.weight_g"),
        (lambda: Own(nn.utils.spectral_norm(nn.Linear(8, 8))), "zero layer"),
        (lambda: Own(prune.identity(nn.Linear(8, 8), "weight")), "hold layer.weight_orig"),
        (lambda: Own(call=in_checkpoint), "identity layer"),
        (Silent, "identity layer"),
        (lambda: torch.compile(Own(), backend="eager"), "identity _orig_mod.layer"),
        (lambda: recurrent(normed), "hold layer.bias_hh_l0[1/4]"),
        (Named, "identity layer"),
    ],
)
def test_modules_of_others_have_right_cuts(made, name):
    module, before = made(), torch.get_rng_state()
    found = spellings(module)
    assert name in found
    assert not any(
        re.search(r"(weight_hr_l0|weight_[gv]|weight.original\d)\[", own) for own in found
    )
    assert torch.get_rng_state().equal(before)


def emptied(module: nn.Module, pretrained: nn.Module) -> nn.Module:
    module.to_empty(device="cpu").load_state_dict(pretrained.state_dict())
    return module


def averaged(module: nn.Module, pretrained: Any) -> nn.Module:
    mean = torch.optim.swa_utils.AveragedModel(module)
    mean.update_parameters(pretrained)
    return mean.module


def vector(module: nn.Module, pretrained: nn.Module) -> nn.Module:
    numbers = nn.utils.parameters_to_vector(pretrained.parameters())
    nn.utils.vector_to_parameters(numbers, module.parameters())
    return module


def loaded(module: nn.Module, pretrained: nn.Module, *, assign: bool = False) -> nn.Module:
    module.load_state_dict(copy.deepcopy(pretrained).state_dict(), assign=assign)
    return module


WRITES: Any = (loaded, functools.partial(loaded, assign=True), vector, emptied, averaged)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("part", ["", "[2/4]"])
def test_what_is_held_is_zero_whatever_writes_it(write, part):
    pretrained = recurrent()
    name = f"hold layer.weight_hh_l0{part}"
    right = cut_copy(pretrained, name)(TOKENS)
    module = write(cut_copy(recurrent(), name), pretrained)
    twice = module(TOKENS) + module(TOKENS)
    twice.sum().backward()  # the first pass has kept the weight
    assert torch.allclose(module(TOKENS), right)
    assert not torch.allclose(pretrained(TOKENS), right)
    assert name in module.lmzoo_cuts[0]


def test_a_cut_of_compiled_code_that_ran_already_acts():
    module = torch.compile(Own(), backend="eager")
    module(TOKENS)
    apply_cut(module, "zero _orig_mod.layer")
    assert module(TOKENS).equal(module._orig_mod.readout.bias.expand(*TOKENS.shape, V))


CALLS: list[int] = []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Own(call=lambda m, x: nn.functional.dropout(m.layer(x))), "two equal calls"),
        (lambda: Own(call=lambda m, x: CALLS.append(1) or m.layer(x) * len(CALLS)), "equal calls"),
        (lambda: Own(call=lambda m, x: m.layer(x) * random.random()), "two equal calls"),
        (lambda: Own(call=lambda m, x: exit(3)), "fails on these inputs: SystemExit"),
        (lambda: Own(nn.LazyConv1d(8, 3)), "fails on these inputs"),
        (lambda: Own(nn.LazyBatchNorm1d()), "call the lazy module once"),
        (lambda: exit, "is no torch module"),
        (lambda: Own(torch.jit.script(nn.Linear(8, 8))), "before torch.jit.script"),
        (lambda: Own().requires_grad_(False), "no parameter that is trained"),  # noqa: FBT003
    ],
)
def test_a_module_without_one_answer_is_refused_in_one_line(made, message):
    with pytest.raises(UserError, match=message) as error:
        cuts(made(), TOKENS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (Own(), "zero readuot", "no cut 'zero readuot' of this module; near: zero readout"),
        (Own(nn.LazyLinear(8)), "hold layer.weight", "has no shape"),
        (Own(), "identity embedding", "'identity embedding' is no cut: its output has not"),
        *(
            (recurrent(), f"hold layer.weight_hh_l0[{part}]", "part . of . of 'layer.weight_hh_l0'")
            for part in ("0/4", "5/4", "1/0", "1/7")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_cut_that_is_not_there_is_one_line(module, name, message):
    with pytest.raises(UserError, match=message):
        cut_copy(module, name)(TOKENS)
