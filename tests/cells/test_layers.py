"""Layers: blocks around a cell, stacks of different cells, and attention with memory."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from lmzoo import Point, Study, zoo
from lmzoo.base.docstrings import equations_left
from lmzoo.base.errors import UserError
from lmzoo.cells.attention import AttentionCell, Memory, SoftmaxAttention
from lmzoo.cells.base import CELLS, Cell
from lmzoo.cells.block import BlockCut
from lmzoo.cells.hybrid import Hybrid
from lmzoo.lab.store.labels import architecture, display_label
from lmzoo.laws.probes import disturb
from lmzoo.train.pack_compatibility import pack_key
from lmzoo.train.recipe import Recipe
from lmzoo.trainables.resolve import open_data, resolve
from tests.cases import cases
from tests.cells.support import CHEAP_LAWS, inputs, make
from tests.cells.test_scans import agree
from tests.kernels.variants import data
from tests.tiny import assert_equal_double

F = nn.functional


@pytest.mark.parametrize("inner", ["lstm", "hm_lstm", "grid_lstm"])
def test_a_block_with_all_cuts_is_its_cell_and_a_matrix(inner):
    cell = make("block", inner=inner, cuts=[cut.value for cut in BlockCut])
    x, start = inputs(cell)
    expected = cell.inner.scan(x, start) @ cell.w.out.T
    assert_equal_double(cell.scan(x, start), expected)


CANON_AND_CUTS = [
    ("a,c,d", []),
    ("a", ["convolution", "norm"]),
    ("c,d", ["residual", "output_gate"]),
]


@pytest.mark.parametrize(("canon", "cuts"), CANON_AND_CUTS, ids=str)
def test_canon_layers_in_scan_steps_and_laws(canon, cuts):
    fields = {"inner": "gru", "canon": canon, "cuts": cuts}
    agree(make("block", width=5, length=6, **fields), 3, 6)
    for law in CHEAP_LAWS:
        law(make("block", **fields))


@pytest.mark.parametrize(("canon", "cuts"), CANON_AND_CUTS, ids=str)
def test_each_canon_layer_has_a_weight(canon, cuts):
    cell = make("block", inner="gru", canon=canon, cuts=cuts)
    expected = {f"canon_{place}" for place in canon.split(",")}
    names = {name for name, _ in cell.w.named_parameters()}
    assert {name for name in names if "canon" in name} == expected


def convolved(z: Tensor, taps: Tensor) -> Tensor:
    """The causal depthwise convolution of width 4."""
    padded = F.pad(z.mT, (3, 0))
    return F.conv1d(padded, taps[:, None], groups=len(taps)).mT


def canon_layer(weight: Tensor, z: Tensor) -> Tensor:
    """As PhysicsLM4's `apply_canon` with a residual."""
    return z + convolved(z, weight)


MEMORY = {"mamba": "x", "mamba2": "xbc", "mamba3": "xbc", "mlstm": "u"}
"""First projections of cells that do not have q, k and v there."""


@pytest.mark.parametrize("inner", [*MEMORY, "gla", "deltaproduct"])
def test_canon_b_convolves_what_becomes_queries_keys_and_values(inner):
    """The projections, before a convolution of the cell's own; gates and decays stay."""
    fields = {"inner": inner, "cuts": ["convolution"], "width": 8, "length": 6}
    cell = make("block", canon="b", **fields)
    x, start = data(cell, 3, 6)
    plain = make("block", **fields)
    project = plain.inner.project
    # Gates and decays come after them in the projection.
    names = MEMORY.get(inner, "qkv")
    size = sum(len(plain.inner.w.get_parameter(name)) for name in names)

    def mixed(u: Tensor) -> Tensor:
        z = project(u)
        memory = canon_layer(cell.w.canon_b, z[..., :size])
        return torch.cat([memory, z[..., size:]], dim=-1)

    # The same cell without Canon, whose projections are convolved here.
    plain.inner.project = mixed
    assert_equal_double(plain.scan(x, start), cell.scan(x, start))


@pytest.mark.parametrize("inner", [*MEMORY, "gla", "deltaproduct"])
def test_canon_b_is_the_same_in_scan_and_steps(inner):
    cell = make("block", width=8, length=6, canon="b", inner=inner, cuts=["convolution"])
    agree(cell, 3, 6)


def reference(cell, x: Tensor, start: Tensor) -> Tensor:
    """Compute the block with torch's convolution and norms, one part after another."""
    w = cell.w

    def canon(place: str, z: Tensor) -> Tensor:
        weight = getattr(w, f"canon_{place}", None)
        if weight is None:
            return z
        return canon_layer(weight, z)

    def rms(z: Tensor, scales: Tensor) -> Tensor:
        return F.rms_norm(z, z.shape[-1:], scales, 1e-5)

    normed = canon("a", rms(x, w.norm))
    u = F.silu(convolved(normed, w.conv))
    y = cell.inner.naive_scan(u, start)
    r = x + (y * F.silu(u @ w.gate.T)) @ w.out.T
    z = canon("c", rms(r, w.forward_norm))
    a, b = canon("d", z @ w.up.T).chunk(2, dim=-1)
    return r + (F.silu(a) * b) @ w.down.T


@pytest.mark.parametrize("canon", ["", "a", "c", "d", "a,c,d"])
def test_it_computes_its_equation(canon):
    cell: Cell = make("block", inner="gru", canon=canon)
    with torch.no_grad():
        for weight in (cell.w.norm, cell.w.forward_norm):
            # A scale of one would hide a norm that is left out.
            weight.add_(torch.rand(cell.width))
    x, start = inputs(cell)
    assert_equal_double(cell.scan(x, start), reference(cell, x, start))


LAYERS = [
    {"name": "gla", "heads": 2},
    {"name": "attention"},
    {"name": "block", "inner": "lstm"},
    {"name": "mgu"},
]


@pytest.mark.parametrize("residual", [False, True])
def test_the_outputs_are_those_of_the_layers(*, residual):
    stack = make("hybrid", width=4, length=5, layers=LAYERS, residual=residual)
    assert isinstance(stack, Hybrid)
    x, start = inputs(stack)
    # Each layer has its own part of the start state.
    sizes = [4 * cell.num_state_vectors for cell in stack.cells]
    h = x
    for cell, state in zip(stack.cells, start.split(sizes, dim=1), strict=True):
        if residual:
            normed = F.rms_norm(h, (4,), eps=1e-5)
            h = h + cell.naive_scan(normed, state)
        else:
            h = cell.naive_scan(h, state)
    assert_equal_double(stack.scan(x, start), h)


@pytest.mark.parametrize("residual", [False, True])
def test_stacks_of_different_cells_obey_the_laws(*, residual):
    for law in CHEAP_LAWS:
        law(make("hybrid", layers=LAYERS, residual=residual))


@cases("cells/cases.toml", "patterns", "text, names")
def test_a_pattern_is_a_list(text, names):
    config = CELLS.parse({"name": "hybrid", "layers": text})
    assert config == CELLS.parse({"name": "hybrid", "layers": names})
    assert CELLS.parse(CELLS.dump(config)) == config


def stack_of(layers: str):
    return zoo.config("recurrent_lm", cell={"name": "hybrid", "layers": layers})


def with_cut(config, layer: str, cut: str | int):
    return zoo.change(config, {"cell": {"layers": {layer: {"cuts": [cut]}}}})


@pytest.fixture
def plain():
    return stack_of("gla, attention, mgu")


def test_a_layer_has_cuts_of_its_own(plain):
    cut = with_cut(plain, "3", "write")
    assert cut != plain
    assert cut == with_cut(plain, "3", 7)


def test_the_label_of_a_layer_names_its_cuts(plain):
    model = zoo.MODELS.dump(with_cut(plain, "3", 7))
    assert display_label("layer 3: cut 7", model["cell"]) == "layer 3: cut write (7)"
    assert architecture(model) == "recurrent_lm hybrid gla attention mgu"


def test_equations_tell_which_layer_differs(plain):
    whole = zoo.MODELS.dump(plain)["cell"]
    cut = zoo.MODELS.dump(with_cut(plain, "3", 7))["cell"]
    other = zoo.MODELS.dump(stack_of("gla, gla, mgu"))["cell"]
    [line] = equations_left(cut, whole)
    assert line.startswith("layer 3: write (7): ")
    assert equations_left(whole, other)[0] == "layer 2: attention"


def test_a_layer_that_is_not_there_is_refused(plain):
    with pytest.raises(UserError, match="layers has 3 entries, numbered from 1"):
        with_cut(plain, "4", 7)


HEADS = "model.cell.layers.3.inner.heads"


@pytest.fixture
def study(tmp_path) -> Study:
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
    point, *_ = resolve(study, data.corpus, data.fields)
    model, _ = point.with_setting({HEADS: 2})
    assert point.default_setting == {HEADS: 4}
    assert model.cell.layers[2].inner.heads == 2


def test_a_search_of_a_layer_that_is_not_there_is_refused(study):
    data = open_data(study)
    wrong = dataclasses.replace(study, search={"model.cell.layers.5.heads": [2, 4]})
    with pytest.raises(UserError, match=r"no field 'model\.cell\.layers\.5\.heads' to search"):
        resolve(wrong, data.corpus, data.fields)


def test_a_cut_of_a_layer_is_a_number_in_a_pack():
    whole = stack_of("mgu, attention")
    cut = with_cut(whole, "1", "state_to_gate")
    recipe = Recipe(batch=5)
    assert pack_key(whole, recipe) == pack_key(cut, recipe)


PARTS = [[part.value] for part in Memory] + [["forget", "sinks"]]
"""What `memory` can be, and everything that goes together."""


def by_hand(a: SoftmaxAttention, u: Tensor, i: int) -> Tensor:
    """Return y_i from the inputs (t, E), with loops over heads and positions."""
    first = 0
    if a.window:
        first = max(0, i - a.window + 1)
    positions = range(first, i + 1)
    heads_of_a_group = a.heads // a.groups
    outputs = []
    for head in range(a.heads):
        group = head // heads_of_a_group
        query = a.query.weight.chunk(a.heads)[head] @ u[i]
        keys = u @ a.key.weight.chunk(a.groups)[group].T
        values = u @ a.value.weight.chunk(a.groups)[group].T
        logits = []
        for j in positions:
            logit = match(query, keys[j], i, j, rotated=a.rotated)
            if Memory.FORGET in a.memory:
                forgotten = u[j + 1 : i + 1] @ a.forget.weight[head] + a.forget.bias[head]
                logit = logit + F.logsigmoid(forgotten).sum()
            logits.append(logit)
        weights = memory_weights(a, torch.stack(logits), head)
        outputs.append(weights @ values[first : i + 1])
    return a.output.weight @ torch.cat(outputs)


def match(query: Tensor, key: Tensor, i: int, j: int, *, rotated: bool) -> Tensor:
    """Return the logit of position j for the query at i."""
    if rotated:
        query = turned(query, i)
        key = turned(key, j)
    return query @ key / len(query) ** 0.5


def memory_weights(a: SoftmaxAttention, logits: Tensor, head: int) -> Tensor:
    """Return the weights of the values from the logits of one query."""
    if Memory.STICK_BREAKING not in a.memory:
        total = logits.exp().sum()
        if Memory.SINKS in a.memory:
            total = total + a.sink[head].exp()
        return logits.exp() / total
    # The stick is broken from the query back, and the query itself gets nothing.
    left = torch.ones((), dtype=logits.dtype)
    weights = [torch.zeros((), dtype=logits.dtype)]
    for logit in logits[:-1].flip(0):
        share = torch.sigmoid(logit)
        weights.append(left * share)
        left = left * (1 - share)
    return torch.stack(weights).flip(0)


def turned(z: Tensor, t: int) -> Tensor:
    """Rotate pairs of numbers as complex numbers."""
    pairs = torch.view_as_complex(z.view(-1, 2).contiguous())
    exponents = torch.arange(0, len(z), 2, dtype=z.dtype) / len(z)
    turns = torch.exp(1j * t * 10000**-exponents)
    return torch.view_as_real(pairs * turns).flatten()


def attention(length: int = 6, **fields) -> AttentionCell:
    cell = make("attention", width=6, length=length, heads=2, **fields)
    assert isinstance(cell, AttentionCell)
    disturb(cell)
    return cell


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("memory", [[], *PARTS], ids=str)
def test_the_outputs_are_those_of_the_equations(memory, window):
    cell = attention(memory=memory, window=window)
    x, start = inputs(cell)
    with torch.no_grad():
        expected = torch.stack([by_hand(cell.w, x[0], i) for i in range(6)])
        assert_equal_double(cell.scan(x, start)[0], expected)


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("memory", [[], *PARTS], ids=str)
def test_attention_with_each_memory_obeys_the_laws(memory, window):
    for law in CHEAP_LAWS:
        law(attention(length=4, memory=memory, window=window))


def test_attention_has_no_initial_state_to_learn():
    with pytest.raises(UserError, match="has no initial state to learn"):
        attention().constrain_start(torch.zeros(2, 6))
