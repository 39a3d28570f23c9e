"""Cuts of modules that were not written for this: what is found, what is one function, training."""

import copy
import dataclasses
import functools
import itertools
import random
import re

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

V = 11
T = 6
TOKENS = torch.randint(V, (4, T), generator=torch.Generator().manual_seed(1))


class Scored(nn.Module):
    """A row of the zoo as a module with a forward pass."""

    def __init__(self, row: str, **fields):
        super().__init__()
        self.m = zoo.build(zoo.config(row, width=8, **fields), Task(V, T), seed=0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.m.log_prob(tokens, torch.full((len(tokens),), T))


class Own(nn.Module):
    """A module around one layer, whose call a test replaces."""

    def __init__(self, layer=None, call=None, width: int = 8, **more):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(V, 8)
        self.layer = layer or nn.Linear(8, 8)
        self.readout = nn.Linear(width, V)
        self.call = call or (lambda m, x: m.layer(x))
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, tokens: torch.Tensor):
        return self.readout(self.call(self, self.embedding(tokens)))


def recurrent(kind=nn.LSTM, width: int = 8, **options) -> Own:
    cell = kind(8, 8, batch_first=True, **options)
    return Own(cell, lambda m, x: m.layer(x)[0], width)


def transformer() -> Own:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Own(layers, lambda m, x: m.layer(x, mask=mask, is_causal=True))


def spellings(module: nn.Module) -> set[str]:
    names: set[str] = set()
    for cut in cuts(module, TOKENS):
        names |= {cut.name, *cut.aliases}
    return names


def cut_copy(module: nn.Module, name: str) -> nn.Module:
    changed = copy.deepcopy(module)
    apply_cut(changed, name)
    return changed


def trains(module: nn.Module, name: str, read=lambda output: output):
    """Train a cut module for some steps: its loss falls, what is held stays zero."""
    changed = cut_copy(module, name).train()
    optimiser = torch.optim.AdamW(changed.parameters(), 0.02)
    targets = TOKENS[:, 1:].flatten()
    losses = []
    for _ in range(12):
        optimiser.zero_grad()
        logits = read(changed(TOKENS))[:, :-1].flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, targets)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], name
    if name.startswith("hold "):
        assert not held(changed, name.removeprefix("hold ")).any()


def held(module: nn.Module, path: str) -> torch.Tensor:
    """Return a weight, or the part 3 of 4 of `weight[3/4]`."""
    name, _, part = path.removesuffix("]").partition("[")
    weight = module.get_parameter(name)
    if not part:
        return weight
    number, count = part.split("/")
    return weight.chunk(int(count))[int(number) - 1]


@pytest.mark.parametrize(
    ("row", "cell", "seen"),
    [("DLM46", "mgu", ("input", "state", "gate", "candidate")), ("gru", "gru", ("input", "state"))],
)
def test_every_cut_of_a_weight_that_the_zoo_names_is_found(row, cell, seen):
    """Others are terms without a module, or parts of a bias; the GRU stacks three gates."""
    whole = Scored(row).eval()
    outputs = [cut_copy(whole, cut.name)(TOKENS) for cut in cuts(whole, TOKENS)]
    for number, name in enumerate(cut_names(cell)):
        expected = Scored(row, cell={"cuts": [number]}).eval()(TOKENS)
        found = any(expected.allclose(output, atol=1e-6) for output in outputs)
        assert found == name.startswith(seen), name


LAYERS = ("layer.layers.0", "layer.layers.1")
PARTS = ("zero {}.self_attn", "zero {}.linear1", "zero {}.linear2", "identity {}.norm1")
OF_LAYERS = {part.format(layer) for part, layer in itertools.product(PARTS, LAYERS)}
OF_LSTM = {f"hold layer.weight_ih_l0[{gate}/4]" for gate in range(1, 5)}
OF_GRU = {f"hold layer.bias_ih_l0[{gate}/3]" for gate in range(1, 4)}


@pytest.mark.parametrize(
    ("module", "expected"),
    [(transformer(), OF_LAYERS), (recurrent(), OF_LSTM), (recurrent(nn.GRU), OF_GRU)],
    ids=["layers", "LSTM", "GRU"],
)
def test_a_module_has_its_parts_and_trains_without_each(module, expected):
    assert expected <= spellings(module)
    for cut in cuts(module, TOKENS):
        # What would be left is a constant.
        if cut.name != "hold embedding.weight":
            trains(module, cut.name)


def test_only_stacked_weights_have_parts():
    found = spellings(transformer())
    assert "hold layer.layers.0.self_attn.in_proj_weight[3/3]" in found
    for name in found:
        assert "linear1.weight[" not in name


def twice(module, x: torch.Tensor) -> torch.Tensor:
    return module.none(module.b(module.layer(x)) + x)


@pytest.fixture
def own() -> Own:
    """A module with an identity, and with a layer that nothing calls."""
    return Own(call=twice, none=nn.Identity(), b=nn.Linear(8, 8), unused=nn.Linear(8, 8))


def test_what_changes_nothing_is_not_listed(own):
    for cut in cuts(own, TOKENS):
        assert "unused" not in cut.name
        assert cut.name != "identity none"


def test_what_is_the_same_function_is_listed_once(own):
    found = [{cut.name, *cut.aliases} for cut in cuts(own, TOKENS)]
    [b_without_weight] = [names for names in found if "hold b.weight" in names]
    assert "zero layer" in b_without_weight, "b's bias remains"
    assert {"hold layer.weight"} in found, "its bias passes through b"


def test_a_weight_with_two_names_is_held_under_both():
    module = cut_copy(tied(), "hold readout.weight")
    assert not module.embedding.weight.any()


def refuses_zeros(module, x: torch.Tensor) -> torch.Tensor:
    assert bool(x.any()), "no inputs"
    return x


def test_cuts_on_which_a_module_fails_are_left_out():
    names = [cut.name for cut in cuts(Own(nn.Identity(), refuses_zeros), TOKENS)]
    assert names == ["hold readout.weight", "hold readout.bias"]


class Tied(Own):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embedding(tokens)) @ self.embedding.weight.T


def test_cuts_with_which_a_module_learns_nothing_are_left_out():
    module = Tied(nn.Linear(8, 8, bias=False))
    assert [cut.name for cut in cuts(module, TOKENS)] == ["identity layer"]


SIZES = {"vocab_size": V, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
KINDS = {
    "GPT2": ("transformer.h", "attn", {"resid_pdrop": 0, "attn_pdrop": 0, "embd_pdrop": 0}),
    "Llama": ("model.layers", "self_attn", {"intermediate_size": 16}),
}
"""Where a model of transformers has its layers and their attention, and more of its config."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_transformers(kind):
    transformers = pytest.importorskip("transformers")
    layers, attention, fields = KINDS[kind]
    config = getattr(transformers, f"{kind}Config")(**SIZES, **fields)
    module = transformers.AutoModelForCausalLM.from_config(config)
    found = spellings(module)
    for layer in range(2):
        at = f"{layers}.{layer}"
        assert {f"zero {at}.{attention}", f"zero {at}.mlp", f"identity {at}"} <= found
    for cut in cuts(module, TOKENS):
        trains(module, cut.name, lambda output: output.logits)


class Silent(Own):
    def train(self, mode=True):  # noqa: FBT002
        super().train(mode)


Answer = dataclasses.make_dataclass("Answer", ["logits"])


class Named(Own):
    def forward(self, tokens: torch.Tensor):
        return Answer(super().forward(tokens))


class Overwrites(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(x.detach().sigmoid())


@pytest.mark.parametrize("layer", [nn.ReLU(inplace=True), Overwrites()])
def test_the_identity_of_a_module_that_overwrites_its_input(layer):
    module = Own(layer, lambda m, x: m.layer(x + 1) + x)
    assert "identity layer" in spellings(module)
    x = module.embedding(TOKENS)
    expected = module.readout(2 * x + 1)
    assert cut_copy(module, "identity layer")(TOKENS).allclose(expected)


def tied() -> Own:
    module = Own()
    module.readout.weight = module.embedding.weight
    return module


def in_checkpoint(module, x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(module.layer, x, use_reentrant=True)


WAVE = nn.Parameter(torch.polar(torch.ones(8), torch.arange(8.0)))
NORM = nn.utils.parametrizations.weight_norm


def normed(*args, **options) -> nn.Module:
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
    module = made()
    before = torch.get_rng_state()
    found = spellings(module)
    assert name in found
    for own in found:
        assert not re.search(r"(weight_hr_l0|weight_[gv]|weight.original\d)\[", own)
    assert torch.get_rng_state().equal(before)


def emptied(module: nn.Module, pretrained: nn.Module) -> nn.Module:
    module.to_empty(device="cpu").load_state_dict(pretrained.state_dict())
    return module


def averaged(module: nn.Module, pretrained) -> nn.Module:
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


WRITES = (loaded, functools.partial(loaded, assign=True), vector, emptied, averaged)


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
    bias = module._orig_mod.readout.bias
    assert module(TOKENS).equal(bias.expand(*TOKENS.shape, V))


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
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_cut_that_is_not_there_is_one_line(module, name, message):
    with pytest.raises(UserError, match=message):
        cut_copy(module, name)(TOKENS)


@pytest.mark.parametrize("part", ["0/4", "5/4", "1/0", "1/7"])
def test_a_part_that_is_not_there_is_one_line(part):
    with pytest.raises(UserError, match=r"part . of . of 'layer\.weight_hh_l0'"):
        cut_copy(recurrent(), f"hold layer.weight_hh_l0[{part}]")(TOKENS)
