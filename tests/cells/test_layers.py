"""Layers: blocks around a cell, stacks of different cells, and attention with memory."""

import dataclasses

import pytest
import torch
from torch import nn

from lmzoo import Point, Study, zoo
from lmzoo.base.docstrings import equations_left
from lmzoo.base.errors import UserError
from lmzoo.cells.attention import AttentionCell, Memory
from lmzoo.cells.base import CELLS
from lmzoo.cells.block import BlockCut
from lmzoo.cells.hybrid import Hybrid
from lmzoo.lab.store.labels import architecture, display_label
from lmzoo.laws.probes import disturb
from lmzoo.train.pack_compatibility import pack_key
from lmzoo.train.recipe import Recipe
from lmzoo.trainables.resolve import open_data, resolve
from tests.cases import cases, parametrize
from tests.cells.support import CHEAP_LAWS, inputs, make
from tests.cells.test_scans import agree
from tests.kernels.variants import data
from tests.tiny import assert_equal_double

F = nn.functional


@parametrize("inner", ["lstm", "hm_lstm", "grid_lstm"])
def test_a_block_with_all_cuts_is_its_cell_and_a_matrix(inner):
    cuts = [cut.value for cut in BlockCut]
    cell = make("block", inner=inner, cuts=cuts)
    x, start = inputs(cell)
    y = cell.inner.scan(x, start)
    expected = y @ cell.w.out.T
    actual = cell.scan(x, start)
    assert_equal_double(actual, expected)


CANON_AND_CUTS = [
    ("a,c,d", []),
    ("a", ["convolution", "norm"]),
    ("c,d", ["residual", "output_gate"]),
]


@parametrize(("canon", "cuts"), CANON_AND_CUTS, ids=str)
def test_canon_layers_in_scan_steps_and_laws(canon, cuts):
    fields = {"inner": "gru", "canon": canon, "cuts": cuts}
    cell = make("block", width=5, length=6, **fields)
    agree(cell, 3, 6)
    for law in CHEAP_LAWS:
        law(make("block", **fields))


@parametrize(("canon", "cuts"), CANON_AND_CUTS, ids=str)
def test_each_canon_layer_has_a_weight(canon, cuts):
    cell = make("block", inner="gru", canon=canon, cuts=cuts)
    found = set()
    for name, _ in cell.w.named_parameters():
        if "canon" in name:
            found.add(name)
    expected = {f"canon_{place}" for place in canon.split(",")}
    assert found == expected


def convolved(z, taps):
    """The causal depthwise convolution of width 4."""
    # Width 4: three tokens before the present one.
    padded = F.pad(z.mT, (3, 0))
    kernel = taps[:, None]
    return F.conv1d(padded, kernel, groups=len(taps)).mT


def canon_layer(weight, z):
    """As PhysicsLM4's `apply_canon` with a residual."""
    return z + convolved(z, weight)


MEMORY = {"mamba": "x", "mamba2": "xbc", "mamba3": "xbc", "mlstm": "u"}
"""First projections of cells that do not have q, k and v there."""


INNER = parametrize("inner", [*MEMORY, "gla", "deltaproduct"])


@INNER
def test_canon_b_convolves_what_becomes_queries_keys_and_values(inner):
    """The projections, before a convolution of the cell's own; gates and decays stay."""
    fields = {"inner": inner, "cuts": ["convolution"]}
    cell = block_with_heads(canon="b", **fields)
    x, start = data(cell, 3, 6)
    plain = block_with_heads(**fields)
    project = plain.inner.project
    weights = plain.inner.w
    # Gates and decays come after them in the projection.
    names = MEMORY.get(inner, "qkv")
    # Rows of the projection that become queries, keys and values.
    size = sum(len(weights.get_parameter(name)) for name in names)

    def mixed(u):
        z = project(u)
        read = z[..., :size]
        memory = canon_layer(cell.w.canon_b, read)
        rest = z[..., size:]
        return torch.cat([memory, rest], dim=-1)

    # The same cell without Canon, whose projections are convolved here.
    plain.inner.project = mixed
    actual = plain.scan(x, start)
    expected = cell.scan(x, start)
    assert_equal_double(actual, expected)


def block_with_heads(**fields):
    """Return a block whose width its heads divide."""
    return make("block", width=8, length=6, **fields)


@INNER
def test_canon_b_is_the_same_in_scan_and_steps(inner):
    cell = block_with_heads(canon="b", inner=inner, cuts=["convolution"])
    agree(cell, 3, 6)


def reference(cell, x, start):
    """Compute the block with torch's convolution and norms, one part after another."""
    w = cell.w

    def canon(place, z):
        weight = getattr(w, f"canon_{place}", None)
        if weight is None:
            return z
        return canon_layer(weight, z)

    def rms(z, scales):
        channels = z.shape[-1:]
        return F.rms_norm(z, channels, scales, 1e-5)

    # The places of Canon layers are those of PhysicsLM4.
    normed = canon("a", rms(x, w.norm))
    u = F.silu(convolved(normed, w.conv))
    y = cell.inner.naive_scan(u, start)
    gate = F.silu(u @ w.gate.T)
    r = x + (y * gate) @ w.out.T
    normed = rms(r, w.forward_norm)
    z = canon("c", normed)
    # One matrix gives both halves of the gated layer.
    both = canon("d", z @ w.up.T)
    a, b = both.chunk(2, dim=-1)
    hidden = F.silu(a) * b
    return r + hidden @ w.down.T


@parametrize("canon", ["", "a", "c", "d", "a,c,d"])
def test_it_computes_its_equation(canon):
    cell = make("block", inner="gru", canon=canon)
    with torch.no_grad():
        norms = (cell.w.norm, cell.w.forward_norm)
        for weight in norms:
            # A scale of one would hide a norm that is left out.
            weight.add_(torch.rand(cell.width))
    x, start = inputs(cell)
    actual = cell.scan(x, start)
    expected = reference(cell, x, start)
    assert_equal_double(actual, expected)


LAYERS = [
    {"name": "gla", "heads": 2},
    {"name": "attention"},
    {"name": "block", "inner": "lstm"},
    {"name": "mgu"},
]


@parametrize("residual", [False, True])
def test_the_outputs_are_those_of_the_layers(*, residual):
    fields = {"layers": LAYERS, "residual": residual}
    stack = make("hybrid", width=4, length=5, **fields)
    assert isinstance(stack, Hybrid)
    x, start = inputs(stack)
    # Each layer has its own part of the start state.
    sizes = [4 * cell.num_state_vectors for cell in stack.cells]
    starts = start.split(sizes, dim=1)
    h = x
    for cell, state in zip(stack.cells, starts, strict=True):
        if residual:
            normed = F.rms_norm(h, (4,), eps=1e-5)
            h = h + cell.naive_scan(normed, state)
        else:
            h = cell.naive_scan(h, state)
    actual = stack.scan(x, start)
    assert_equal_double(actual, h)


@parametrize("residual", [False, True])
def test_stacks_of_different_cells_obey_the_laws(*, residual):
    for law in CHEAP_LAWS:
        stack = make("hybrid", layers=LAYERS, residual=residual)
        law(stack)


@cases("cells/cases.toml", "patterns", "text, names")
def test_a_pattern_is_a_list(text, names):
    config = hybrid(text)
    assert config == hybrid(names)
    dumped = CELLS.dump(config)
    assert CELLS.parse(dumped) == config


def hybrid(layers):
    return CELLS.parse({"name": "hybrid", "layers": layers})


def stack_of(layers):
    cell = {"name": "hybrid", "layers": layers}
    return zoo.config("recurrent_lm", cell=cell)


def with_cut(config, layer, cut):
    layers = {layer: {"cuts": [cut]}}
    return zoo.change(config, {"cell": {"layers": layers}})


@pytest.fixture
def plain():
    return stack_of("gla, attention, mgu")


def test_a_layer_has_cuts_of_its_own(plain):
    cut = with_cut(plain, "3", "write")
    assert cut != plain
    assert cut == with_cut(plain, "3", 7)


def test_the_label_of_a_layer_names_its_cuts(plain):
    cut = with_cut(plain, "3", 7)
    model = zoo.MODELS.dump(cut)
    label = display_label("layer 3: cut 7", model["cell"])
    assert label == "layer 3: cut write (7)"
    assert architecture(model) == "recurrent_lm hybrid gla attention mgu"


def test_equations_tell_which_layer_differs(plain):
    def dumped(config):
        return zoo.MODELS.dump(config)["cell"]

    whole = dumped(plain)
    cut = dumped(with_cut(plain, "3", 7))
    other = dumped(stack_of("gla, gla, mgu"))
    [line] = equations_left(cut, whole)
    assert line.startswith("layer 3: write (7): ")
    first = equations_left(whole, other)[0]
    assert first == "layer 2: attention"


def test_a_layer_that_is_not_there_is_refused(plain):
    with pytest.raises(UserError, match="layers has 3 entries, numbered from 1"):
        with_cut(plain, "4", 7)


HEADS = "model.cell.layers.3.inner.heads"


@pytest.fixture
def study(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\n" * 40)
    return Study(
        name="layers",
        question="Heads of layer 3?",
        points=(Point("hybrid", "hybrid"),),
        corpus=f"text:{text}",
        search={HEADS: [2, 4]},
    )


def test_a_setting_of_a_layer_is_searched(study):
    data = open_data(study)
    point = resolve(study, data.corpus, data.fields)[0]
    model, _ = point.with_setting({HEADS: 2})
    third = model.cell.layers[2]
    assert point.default_setting == {HEADS: 4}
    assert third.inner.heads == 2


def test_a_search_of_a_layer_that_is_not_there_is_refused(study):
    data = open_data(study)
    search = {"model.cell.layers.5.heads": [2, 4]}
    wrong = dataclasses.replace(study, search=search)
    with pytest.raises(UserError, match=r"no field 'model\.cell\.layers\.5\.heads' to search"):
        resolve(wrong, data.corpus, data.fields)


def test_a_cut_of_a_layer_is_a_number_in_a_pack():
    whole = stack_of("mgu, attention")
    cut = with_cut(whole, "1", "state_to_gate")
    recipe = Recipe(batch=5)
    key = pack_key(whole, recipe)
    assert key == pack_key(cut, recipe)


PARTS = [[part.value] for part in Memory]
PARTS += [["forget", "sinks"]]
"""What `memory` can be, and everything that goes together."""


def of_head(weight, count, number):
    """Return the rows of a head or a group."""
    return weight.chunk(count)[number]


def by_hand(a, u, i):
    """Return y_i from the inputs (t, E), with loops over heads and positions."""
    first = 0
    if a.window:
        first = max(0, i - a.window + 1)
    positions = range(first, i + 1)
    heads_of_a_group = a.heads // a.groups
    outputs = []
    for head in range(a.heads):
        # Heads of a group share keys and values.
        group = head // heads_of_a_group

        query = of_head(a.query.weight, a.heads, head)
        key = of_head(a.key.weight, a.groups, group)
        value = of_head(a.value.weight, a.groups, group)
        query = query @ u[i]
        keys = u @ key.T
        values = u @ value.T
        logits = []
        for j in positions:
            logit = match(query, keys[j], i, j, rotated=a.rotated)
            if Memory.FORGET in a.memory:
                between = u[j + 1 : i + 1]
                forgotten = between @ a.forget.weight[head]
                forgotten = forgotten + a.forget.bias[head]
                kept = F.logsigmoid(forgotten)
                logit = logit + kept.sum()
            logits.append(logit)
        seen = values[first : i + 1]
        weights = memory_weights(a, torch.stack(logits), head)
        outputs.append(weights @ seen)
    return a.output.weight @ torch.cat(outputs)


def match(query, key, i, j, *, rotated):
    """Return the logit of position j for the query at i."""
    if rotated:
        query = turned(query, i)
        key = turned(key, j)
    scale = len(query) ** 0.5
    return query @ key / scale


def memory_weights(a, logits, head):
    """Return the weights of the values from the logits of one query."""
    if Memory.STICK_BREAKING not in a.memory:
        total = logits.exp().sum()
        if Memory.SINKS in a.memory:
            sink = a.sink[head]
            # A sink takes weight, and has no value.
            total = total + sink.exp()
        return logits.exp() / total
    # The stick is broken from the query back, and the query itself gets nothing.
    left = logits.new_ones(())
    weights = [logits.new_zeros(())]
    for logit in logits[:-1].flip(0):
        share = torch.sigmoid(logit)
        weights.append(left * share)
        left = left * (1 - share)
    return torch.stack(weights).flip(0)


def turned(z, t):
    """Rotate pairs of numbers as complex numbers."""
    size = len(z)
    pairs = z.view(-1, 2).contiguous()
    numbers = torch.view_as_complex(pairs)
    places = torch.arange(0, size, 2, dtype=z.dtype)
    exponents = places / size
    turns = torch.exp(1j * t * 10000**-exponents)
    turned_numbers = torch.view_as_real(numbers * turns)
    return turned_numbers.flatten()


def attention(length=6, **fields):
    fields = {"width": 6, "length": length, "heads": 2} | fields
    cell = make("attention", **fields)
    assert isinstance(cell, AttentionCell)
    disturb(cell)
    return cell


EACH_WINDOW = parametrize("window", [0, 3])
EACH_MEMORY = parametrize("memory", [[]] + PARTS, ids=str)


@EACH_WINDOW
@EACH_MEMORY
def test_the_outputs_are_those_of_the_equations(memory, window):
    cell = attention(memory=memory, window=window)
    x, start = inputs(cell)
    with torch.no_grad():
        inputs_of_one = x[0]
        expected = [by_hand(cell.w, inputs_of_one, i) for i in range(6)]
        actual = cell.scan(x, start)[0]
        assert_equal_double(actual, torch.stack(expected))


@EACH_WINDOW
@EACH_MEMORY
def test_attention_with_each_memory_obeys_the_laws(memory, window):
    for law in CHEAP_LAWS:
        cell = attention(length=4, memory=memory, window=window)
        law(cell)


def test_attention_has_no_initial_state_to_learn():
    start = torch.zeros(2, 6)
    with pytest.raises(UserError, match="has no initial state to learn"):
        attention().constrain_start(start)
