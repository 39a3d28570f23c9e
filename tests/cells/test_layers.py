"""Layers: blocks around a cell, stacks of different cells, and attention with memory."""

import dataclasses
import math
from typing import Any

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
from tests.cells.support import CHEAP_LAWS, inputs, make
from tests.cells.test_scans import agree
from tests.kernels.variants import data
from tests.tiny import assert_equal_double, tiny


@pytest.mark.parametrize("inner", ["lstm", "hm_lstm", "grid_lstm"])
def test_a_block_with_all_cuts_is_its_cell_and_a_matrix(inner):
    cell = make("block", inner=inner, cuts=[cut.value for cut in BlockCut])
    x, start = inputs(cell)
    expected = cell.inner.scan(x, start) @ cell.w.out.T
    assert_equal_double(cell.scan(x, start), expected)


@pytest.mark.parametrize(
    ("canon", "cuts"),
    [("a,c,d", []), ("a", ["convolution", "norm"]), ("c,d", ["residual", "output_gate"])],
    ids=str,
)
def test_canon_layers_in_scan_steps_and_laws(canon, cuts):
    fields = {"inner": "gru", "canon": canon, "cuts": cuts}
    cell = make("block", width=5, length=6, **fields)
    agree(cell, 3, 6)
    for law in CHEAP_LAWS:
        law(make("block", **fields))
    assert {name[2:] for name, _ in cell.named_parameters() if "canon" in name} == {
        f"canon_{place}" for place in canon.split(",")
    }


def canon_layer(weight: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """As PhysicsLM4's `apply_canon` with a residual."""
    padded = nn.functional.pad(z.mT, (3, 0))
    return z + nn.functional.conv1d(padded, weight[:, None], groups=len(weight)).mT


MEMORY = {"mamba": "x", "mamba2": "xbc", "mamba3": "xbc", "mlstm": "u"}
"""First projections of cells that do not have q, k and v there."""


@pytest.mark.parametrize("inner", [*MEMORY, "gla", "deltaproduct"])
def test_canon_b_convolves_what_becomes_queries_keys_and_values(inner):
    """The projections, before a convolution of the cell's own; gates and decays stay."""
    fields = {"inner": inner, "cuts": ["convolution"]}
    cell: Any = make("block", width=8, length=6, canon="b", **fields)
    x, start = data(cell, 3, 6)
    agree(make("block", width=8, length=6, canon="b", **fields), 3, 6)
    plain: Any = make("block", width=8, length=6, **fields)
    project = plain.inner.project
    w = plain.inner.w
    size = sum(len(getattr(w, name)) for name in MEMORY.get(inner, "qkv"))

    def mixed(u: torch.Tensor) -> torch.Tensor:
        z = project(u)
        return torch.cat([canon_layer(cell.w.canon_b, z[..., :size]), z[..., size:]], dim=-1)

    plain.inner.project = mixed
    assert_equal_double(plain.scan(x, start), cell.scan(x, start))


def test_canon_b_needs_queries_keys_and_values():
    for inner in ("min_gru", "rwkv7"):
        with pytest.raises(UserError, match=f"canon=b needs .* {inner} does not; drop b"):
            make("block", inner=inner, canon="b")


def test_canon_and_cuts_of_its_part_exclude_each_other():
    with pytest.raises(UserError, match="canon=c is in the feed-forward part, which is cut"):
        make("block", canon="c,a", cuts=["feed_forward"])


def reference(cell: Any, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Compute the block with torch's convolution and norms, one part after another."""
    w = cell.w
    h = cell.width
    norm = nn.RMSNorm(h, eps=1e-5).double()
    norm.weight.data.copy_(w.norm)

    def canon(place: str, z: torch.Tensor) -> torch.Tensor:
        weight = getattr(w, f"canon_{place}", None)
        if weight is None:
            return z
        return canon_layer(weight, z)

    normed = canon("a", norm(x))
    padded = nn.functional.pad(normed.mT, (3, 0))
    u = nn.functional.silu(nn.functional.conv1d(padded, w.conv[:, None], groups=h).mT)
    gate = u @ w.gate.T
    r = x + (cell.inner.naive_scan(u, start) * gate * gate.sigmoid()) @ w.out.T
    norm.weight.data.copy_(w.forward_norm)
    a, b = canon("d", canon("c", norm(r)) @ w.up.T).chunk(2, dim=-1)
    return r + (a * a.sigmoid() * b) @ w.down.T


@pytest.mark.parametrize("canon", ["", "a", "c", "d", "a,c,d"])
def test_it_computes_its_equation(canon):
    cell: Cell = make("block", inner="gru", canon=canon)
    with torch.no_grad():
        for weight in (cell.w.norm, cell.w.forward_norm):
            weight.add_(torch.rand(cell.width))
    assert_equal_double(cell.scan(*inputs(cell)), reference(cell, *inputs(cell)))


LAYERS = [{"name": "gla", "heads": 2}, "attention", {"name": "block", "inner": "lstm"}, "mgu"]


@pytest.mark.parametrize("fields", [{"residual": False}, {"residual": True}], ids=str)
def test_the_outputs_are_those_of_the_layers_and_the_laws_hold(fields):
    stack = make("hybrid", width=4, length=5, layers=LAYERS, **fields)
    residual = fields["residual"]
    assert isinstance(stack, Hybrid)
    x, start = inputs(stack)
    h = x
    begin = 0
    for cell in stack.cells:
        end = begin + cell.num_state_vectors * 4
        u = h
        if residual:
            u = h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        y = cell.naive_scan(u, start[:, begin:end])
        if residual:
            h = h + y
        else:
            h = y
        begin = end
    assert_equal_double(stack.scan(x, start), h)
    for law in CHEAP_LAWS:
        law(make("hybrid", layers=LAYERS, residual=residual))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("3:1", ["gla"] * 3 + ["attention"]),
        ("mamba 1:1 attention x2", ["mamba", "attention"] * 2),
        ("[gla, gla, attention, gla]", ["gla", "gla", "attention", "gla"]),
    ],
)
def test_a_pattern_is_a_list(text, names):
    config = CELLS.parse({"name": "hybrid", "layers": text})
    assert [CELLS.name_of(layer) for layer in config.layers] == names
    assert config == CELLS.parse({"name": "hybrid", "layers": names})
    assert CELLS.parse(CELLS.dump(config)) == config


def test_no_layer_and_an_unknown_layer_are_refused():
    for layers, words in (("", "layers are a list"), ("gla, atention", "no cell 'atention'")):
        with pytest.raises(UserError, match=words):
            CELLS.parse({"name": "hybrid", "layers": layers})


def test_a_layer_has_settings_cuts_equations_and_labels_of_its_own():
    plain = zoo.config("recurrent_lm", cell={"name": "hybrid", "layers": "gla, attention, mgu"})
    cut = zoo.change(plain, {"cell": {"layers": {"3": {"cuts": ["write"]}}}})
    assert cut == zoo.change(plain, {"cell": {"layers": {"3": {"cuts": [7]}}}}) != plain
    model, whole = (zoo.MODELS.dump(config) for config in (cut, plain))
    assert display_label("layer 3: cut 7", model["cell"]) == "layer 3: cut write (7)"
    assert architecture(model) == "recurrent_lm hybrid gla attention mgu"
    [line] = equations_left(model["cell"], whole["cell"])
    assert line.startswith("layer 3: write (7): ")
    other = {"name": "hybrid", "layers": [{"name": name} for name in ("gla", "gla", "mgu")]}
    assert equations_left(whole["cell"], other)[0] == "layer 2: attention"
    with pytest.raises(UserError, match="layers has 3 entries, numbered from 1"):
        zoo.change(plain, {"cell": {"layers": {"4": {"cuts": [7]}}}})


def test_a_setting_of_a_layer_is_searched(tmp_path):
    (tmp_path / "text.txt").write_text("a man runs\na dog sits\n" * 40)
    path = "model.cell.layers.3.inner.heads"
    study = Study(
        name="layers",
        question="Heads of layer 3?",
        points=(Point("hybrid", "hybrid"),),
        corpus=f"text:{tmp_path / 'text.txt'}",
        search={path: [2, 4]},
    )
    data = open_data(study)
    point, *_ = resolve(study, data.corpus, data.fields)
    assert point.default_setting == {path: 4}
    assert point.with_setting({path: 2})[0].cell.layers[2].inner.heads == 2
    wrong = dataclasses.replace(study, search={"model.cell.layers.5.heads": [2, 4]})
    with pytest.raises(UserError, match=r"no field 'model\.cell\.layers\.5\.heads' to search"):
        resolve(wrong, data.corpus, data.fields)


def test_a_layer_without_an_initial_state_learns_none():
    with pytest.raises(UserError, match="attention has no initial state to learn"):
        tiny("recurrent_lm", cell="attention", starts=2)
    with pytest.raises(UserError, match="have no common zero"):
        tiny("recurrent_lm", cell={"name": "hybrid", "layers": "gla, mgu"}, start="zeros")


def test_a_cut_of_a_layer_is_a_number_in_a_pack():
    layers = [{"name": "mgu", "cuts": []}, "attention"]
    whole = zoo.config("recurrent_lm", width=4, cell={"name": "hybrid", "layers": layers})
    cut = zoo.change(whole, {"cell": {"layers": {"1": {"cuts": ["state_to_gate"]}}}})
    assert pack_key(whole, Recipe(batch=5)) == pack_key(cut, Recipe(batch=5))


PARTS = [*([part.value] for part in Memory), ["forget", "sinks"]]
"""What `memory` can be, and everything that goes together."""


def by_hand(a: SoftmaxAttention, u: Tensor, i: int) -> Tensor:
    """Return y_i from the inputs (t, E), with loops over heads and positions."""
    size = a.size
    read = []
    for head in range(a.heads):
        group = head // (a.heads // a.groups)
        rows = slice(head * size, (head + 1) * size)
        shared = slice(group * size, (group + 1) * size)
        q = a.query.weight[rows] @ u[i]
        first = 0
        if a.window:
            first = max(0, i - a.window + 1)
        logits = []
        for j in range(first, i + 1):
            k = a.key.weight[shared] @ u[j]
            if a.rotated:
                logits.append(turned(q, i) @ turned(k, j) / size**0.5)
                continue
            logits.append(q @ k / size**0.5)
        if Memory.FORGET in a.memory:
            for n, j in enumerate(range(first, i + 1)):
                for s in range(j + 1, i + 1):
                    f = torch.sigmoid(a.forget.weight[head] @ u[s] + a.forget.bias[head])
                    logits[n] = logits[n] + f.log()
        if Memory.STICK_BREAKING in a.memory:
            left = torch.ones((), dtype=u.dtype)
            weights = [torch.zeros((), dtype=u.dtype)]
            for logit in reversed(logits[:-1]):  # the stick is broken from the query back
                weights.insert(0, left * torch.sigmoid(logit))
                left = left * (1 - torch.sigmoid(logit))
        else:
            total = sum(map(torch.exp, logits)) + (
                a.sink[head].exp() if Memory.SINKS in a.memory else 0
            )
            weights = [logit.exp() / total for logit in logits]
        values = [a.value.weight[shared] @ u[j] for j in range(first, i + 1)]
        read.append(sum(w * v for w, v in zip(weights, values, strict=True)))
    return a.output.weight @ torch.cat(read)


def turned(z: Tensor, t: int) -> Tensor:
    """Rotate pairs of numbers as complex numbers."""
    pairs = torch.view_as_complex(z.view(-1, 2).contiguous())
    angles = [t * 10000 ** (-2 * i / len(z)) for i in range(len(pairs))]
    turns = torch.tensor(
        [complex(math.cos(a), math.sin(a)) for a in angles], dtype=torch.complex128
    )
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
    for law in CHEAP_LAWS:
        law(attention(length=4, memory=memory, window=window))


def test_wrong_parts_are_refused():
    with pytest.raises(UserError, match="stick_breaking has no softmax for forget, sinks"):
        CELLS.parse({"name": "attention", "memory": [0, 1, 2]})
    with pytest.raises(UserError, match="has no initial state to learn"):
        attention().constrain_start(torch.zeros(2, 6))
