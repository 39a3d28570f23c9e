"""Cuts of modules that were not written for this: what is found, what is one function, training."""

import copy
import dataclasses
import functools
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
from lmzoo.laws.tiny import full_lengths
from tests.cases import parametrize

V = 11
T = 6
GENERATOR = torch.Generator().manual_seed(1)
TOKENS = torch.randint(V, (4, T), generator=GENERATOR)


class Scored(nn.Module):
    """A row of the zoo as a module with a forward pass."""

    def __init__(self, row, **fields):
        super().__init__()
        config = zoo.config(row, width=8, **fields)
        task = Task(V, T)
        self.m = zoo.build(config, task, seed=0)

    def forward(self, tokens):
        return self.m.log_prob(tokens, full_lengths(tokens))


def call_layer(module, x):
    return module.layer(x)


def linear():
    return nn.Linear(8, 8)


class Own(nn.Module):
    """A module around one layer, whose call a test replaces."""

    def __init__(self, layer=None, call=None, width=8, **more):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(V, 8)
        self.layer = layer or linear()
        self.readout = nn.Linear(width, V)
        self.call = call or call_layer
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, tokens):
        embedded = self.embedding(tokens)
        return self.readout(self.call(self, embedded))


def recurrent(kind=nn.LSTM, width=8, **options):
    cell = kind(8, 8, batch_first=True, **options)
    return Own(cell, lambda m, x: m.layer(x)[0], width)


def transformer():
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    layer = nn.TransformerEncoderLayer(8, 2, 16, **options)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Own(layers, lambda m, x: m.layer(x, mask=mask, is_causal=True))


def spellings_of(cut):
    return {cut.name, *cut.aliases}


def spellings(module):
    names = set()
    for cut in cuts(module, TOKENS):
        names |= spellings_of(cut)
    return names


def cut_copy(module, name):
    changed = copy.deepcopy(module)
    apply_cut(changed, name)
    return changed


def trains(module, name, read=lambda output: output):
    """Train a cut module for some steps: its loss falls, what is held stays zero."""
    changed = cut_copy(module, name).train()
    optimiser = torch.optim.AdamW(changed.parameters(), 0.02)
    targets = TOKENS[:, 1:].flatten()
    losses = []
    for _ in range(12):
        optimiser.zero_grad()
        output = read(changed(TOKENS))
        logits = output[:, :-1].flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, targets)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], name
    if name.startswith("hold "):
        path = name.removeprefix("hold ")
        assert not held(changed, path).any()


def held(module, path):
    """Return a weight, or the part 3 of 4 of `weight[3/4]`."""
    name, _, part = path.removesuffix("]").partition("[")
    weight = module.get_parameter(name)
    if not part:
        return weight
    number, count = map(int, part.split("/"))
    return weight.chunk(count)[number - 1]


NAMED_CUTS = [
    ("DLM46", "mgu", ("input", "state", "gate", "candidate")),
    ("gru", "gru", ("input", "state")),
]


@parametrize(("row", "cell", "seen"), NAMED_CUTS)
def test_every_cut_of_a_weight_that_the_zoo_names_is_found(row, cell, seen):
    """Others are terms without a module, or parts of a bias; the GRU stacks three gates."""
    whole = Scored(row).eval()
    names = [cut.name for cut in cuts(whole, TOKENS)]
    outputs = [cut_copy(whole, name)(TOKENS) for name in names]
    for number, name in enumerate(cut_names(cell)):
        cell_fields = {"cuts": [number]}
        cut = Scored(row, cell=cell_fields).eval()
        expected = cut(TOKENS)
        # Some cut of the module computes what the row's cut does.
        found = any(expected.allclose(output, atol=1e-6) for output in outputs)
        assert found == name.startswith(seen), name


PARTS = ("zero {}.self_attn", "zero {}.linear1", "zero {}.linear2", "identity {}.norm1")
OF_LAYERS = {part.format("layer.layers.0") for part in PARTS}
OF_LAYERS |= {part.format("layer.layers.1") for part in PARTS}
OF_LSTM = {f"hold layer.weight_ih_l0[{gate}/4]" for gate in range(1, 5)}
OF_GRU = {f"hold layer.bias_ih_l0[{gate}/3]" for gate in range(1, 4)}
WITH_PARTS = {
    "layers": (transformer, OF_LAYERS),
    "LSTM": (recurrent, OF_LSTM),
    "GRU": (lambda: recurrent(nn.GRU), OF_GRU),
}


@parametrize("kind", WITH_PARTS)
def test_a_module_has_its_parts_and_trains_without_each(kind):
    build, expected = WITH_PARTS[kind]
    module = build()
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


def twice(module, x):
    y = module.b(module.layer(x))
    return module.none(y + x)


@pytest.fixture
def own():
    """A module with an identity, and with a layer that nothing calls."""
    parts = {"none": nn.Identity()}
    parts |= {"b": linear(), "unused": linear()}
    return Own(call=twice, **parts)


def test_what_changes_nothing_is_not_listed(own):
    for cut in cuts(own, TOKENS):
        assert "unused" not in cut.name
        assert cut.name != "identity none"


def test_what_is_the_same_function_is_listed_once(own):
    found = [spellings_of(cut) for cut in cuts(own, TOKENS)]
    [b_without_weight] = [names for names in found if "hold b.weight" in names]
    assert "zero layer" in b_without_weight, "b's bias remains"
    assert {"hold layer.weight"} in found, "its bias passes through b"


def test_a_weight_with_two_names_is_held_under_both():
    # The embedding is the same parameter.
    module = cut_copy(tied(), "hold readout.weight")
    assert not module.embedding.weight.any()


def refuses_zeros(module, x):
    # So a cut that leaves zeros fails.
    assert bool(x.any()), "no inputs"
    return x


def names_of_cuts(module):
    return [cut.name for cut in cuts(module, TOKENS)]


def test_cuts_on_which_a_module_fails_are_left_out():
    module = Own(nn.Identity(), refuses_zeros)
    assert names_of_cuts(module) == ["hold readout.weight", "hold readout.bias"]


class Tied(Own):
    def forward(self, tokens):
        y = self.layer(self.embedding(tokens))
        return y @ self.embedding.weight.T


def test_cuts_with_which_a_module_learns_nothing_are_left_out():
    module = Tied(nn.Linear(8, 8, bias=False))
    assert names_of_cuts(module) == ["identity layer"]


SIZES = {"vocab_size": V, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
KINDS = {"GPT2": ("transformer.h", "attn"), "Llama": ("model.layers", "self_attn")}
"""Where a model of transformers has its layers and their attention."""
FIELDS = {
    "GPT2": {"resid_pdrop": 0, "attn_pdrop": 0, "embd_pdrop": 0},
    "Llama": {"intermediate_size": 16},
}


@parametrize("kind", KINDS)
def test_a_model_of_transformers(kind):
    transformers = pytest.importorskip("transformers")
    layers, attention = KINDS[kind]
    config_of = getattr(transformers, f"{kind}Config")
    config = config_of(**SIZES, **FIELDS[kind])
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
    def forward(self, tokens):
        return Answer(super().forward(tokens))


class Overwrites(nn.Module):
    def forward(self, x):
        factor = x.detach().sigmoid()
        return x.mul_(factor)


OVERWRITING = [nn.ReLU(inplace=True), Overwrites()]


@parametrize("layer", OVERWRITING)
def test_the_identity_of_a_module_that_overwrites_its_input(layer):
    module = Own(layer, lambda m, x: m.layer(x + 1) + x)
    assert "identity layer" in spellings(module)
    x = module.embedding(TOKENS)
    expected = module.readout(2 * x + 1)
    changed = cut_copy(module, "identity layer")
    assert changed(TOKENS).allclose(expected)


def tied():
    module = Own()
    module.readout.weight = module.embedding.weight
    return module


def in_checkpoint(module, x):
    return torch.utils.checkpoint.checkpoint(module.layer, x, use_reentrant=True)


TURNS = torch.polar(torch.ones(8), torch.arange(8.0))
WAVE = nn.Parameter(TURNS)
UTILS = nn.utils
NORM = UTILS.parametrizations.weight_norm


def normed(*args, **options):
    lstm = nn.LSTM(*args, **options)
    return NORM(lstm, "weight_hh_l0")


def by_name(module, x):
    return module.layer(input=x)


def waving(module, x):
    numbers = module.layer(x) * module.wave
    return numbers.imag


OTHERS = [
    (lambda: Own(call=by_name), "identity layer"),
    (lambda: recurrent(width=6, proj_size=6), "hold layer.weight_hr_l0"),
    (tied, "hold embedding.weight"),
    (lambda: Own(call=waving, wave=WAVE), "hold wave"),
    (lambda: Own(nn.LazyLinear(8)), "hold layer.weight"),
    (lambda: Own(NORM(linear())), "zero layer"),
    (lambda: Own(UTILS.weight_norm(linear())), "hold layer.weight_g"),
    (lambda: Own(UTILS.spectral_norm(linear())), "zero layer"),
    (lambda: Own(prune.identity(linear(), "weight")), "hold layer.weight_orig"),
    (lambda: Own(call=in_checkpoint), "identity layer"),
    (Silent, "identity layer"),
    (lambda: torch.compile(Own(), backend="eager"), "identity _orig_mod.layer"),
    (lambda: recurrent(normed), "hold layer.bias_hh_l0[1/4]"),
    (Named, "identity layer"),
]


@pytest.mark.filterwarnings("ignore")
@parametrize(("made", "name"), OTHERS)
def test_modules_of_others_have_right_cuts(made, name):
    module = made()
    before = torch.get_rng_state()
    found = spellings(module)
    assert name in found
    for own in found:
        assert not re.search(r"(weight_hr_l0|weight_[gv]|weight.original\d)\[", own)
    # The global generator is as it was.
    after = torch.get_rng_state()
    assert after.equal(before)


def emptied(module, pretrained):
    empty = module.to_empty(device="cpu")
    empty.load_state_dict(pretrained.state_dict())
    return module


def averaged(module, pretrained):
    mean = torch.optim.swa_utils.AveragedModel(module)
    mean.update_parameters(pretrained)
    return mean.module


def vector(module, pretrained):
    numbers = nn.utils.parameters_to_vector(pretrained.parameters())
    nn.utils.vector_to_parameters(numbers, module.parameters())
    return module


def loaded(module, pretrained, *, assign=False):
    state = copy.deepcopy(pretrained.state_dict())
    module.load_state_dict(state, assign=assign)
    return module


ASSIGNED = functools.partial(loaded, assign=True)
WRITES = (loaded, ASSIGNED, vector, emptied, averaged)


@parametrize("write", WRITES)
@parametrize("part", ["", "[2/4]"])
def test_what_is_held_is_zero_whatever_writes_it(write, part):
    pretrained = recurrent()
    name = f"hold layer.weight_hh_l0{part}"
    right = cut_copy(pretrained, name)(TOKENS)
    module = write(cut_copy(recurrent(), name), pretrained)
    first = module(TOKENS)
    second = module(TOKENS)
    total = (first + second).sum()
    total.backward()  # the first pass has kept the weight
    assert torch.allclose(module(TOKENS), right)
    assert not torch.allclose(pretrained(TOKENS), right)
    assert name in module.lmzoo_cuts[0]


def test_a_cut_of_compiled_code_that_ran_already_acts():
    module = torch.compile(Own(), backend="eager")
    module(TOKENS)
    apply_cut(module, "zero _orig_mod.layer")
    bias = module._orig_mod.readout.bias
    expected = bias.expand(*TOKENS.shape, V)
    assert module(TOKENS).equal(expected)


CALLS = []


def counting(module, x):
    CALLS.append(1)
    return module.layer(x) * len(CALLS)


def dropping(module, x):
    return nn.functional.dropout(module.layer(x))


def random_layer(module, x):
    return module.layer(x) * random.random()


def untrained():
    module = Own()
    return module.requires_grad_(requires_grad=False)


REFUSED = [
    (lambda: Own(call=dropping), "two equal calls"),
    (lambda: Own(call=counting), "equal calls"),
    (lambda: Own(call=random_layer), "two equal calls"),
    (lambda: Own(call=lambda m, x: exit(3)), "fails on these inputs: SystemExit"),
    (lambda: Own(nn.LazyConv1d(8, 3)), "fails on these inputs"),
    (lambda: Own(nn.LazyBatchNorm1d()), "call the lazy module once"),
    (lambda: exit, "is no torch module"),
    (lambda: Own(torch.jit.script(linear())), "before torch.jit.script"),
    (untrained, "no parameter that is trained"),
]


@pytest.mark.filterwarnings("ignore")
@parametrize(("made", "message"), REFUSED)
def test_a_module_without_one_answer_is_refused_in_one_line(made, message):
    module = made()
    with pytest.raises(UserError, match=message) as error:
        cuts(module, TOKENS)
    assert "\n" not in str(error.value)


NO_CUTS = [
    (Own(), "zero readuot", "no cut 'zero readuot' of this module; near: zero readout"),
    (Own(nn.LazyLinear(8)), "hold layer.weight", "has no shape"),
    (Own(), "identity embedding", "'identity embedding' is no cut: its output has not"),
]


@parametrize(("module", "name", "message"), NO_CUTS)
@pytest.mark.filterwarnings("ignore")
def test_a_cut_that_is_not_there_is_one_line(module, name, message):
    with pytest.raises(UserError, match=message):
        cut_copy(module, name)(TOKENS)


NO_PARTS = ["0/4", "5/4", "1/0", "1/7"]


@parametrize("part", NO_PARTS)
def test_a_part_that_is_not_there_is_one_line(part):
    name = f"hold layer.weight_hh_l0[{part}]"
    with pytest.raises(UserError, match=r"part . of . of 'layer\.weight_hh_l0'"):
        cut_copy(recurrent(), name)(TOKENS)
