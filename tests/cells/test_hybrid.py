"""A stack of different layers equals its layers one by one."""

import dataclasses

import pytest
import torch

from lmzoo import Point, Study, zoo
from lmzoo.base.equations import equations_left
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.hybrid import Hybrid
from lmzoo.lab.store.labels import architecture, display_label
from lmzoo.laws.cells import UNCUT_LAWS
from lmzoo.laws.support import assert_close
from lmzoo.laws_of_training.packing import assert_trainings_equal, random_corpus
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_compatibility import pack_key
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from lmzoo.trainables.resolve import open_data, resolve
from tests.cells.support import inputs, make
from tests.tiny import FINE, SAME, tiny

LAYERS = [{"name": "gla", "heads": 2}, "attention", {"name": "block", "inner": "lstm"}, "mgu"]


@pytest.mark.parametrize("fields", [{"residual": False}, {"residual": True}], ids=str)
def test_the_outputs_are_those_of_the_layers_and_the_laws_hold(fields: dict[str, bool]) -> None:
    stack, residual = make("hybrid", width=4, length=5, layers=LAYERS, **fields), fields["residual"]
    assert isinstance(stack, Hybrid)
    x, start = inputs(stack)
    h, begin = x, 0
    for cell in stack.cells:
        end = begin + cell.num_state_vectors * 4
        u = h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt() if residual else h
        y = cell.naive_scan(u, start[:, begin:end])
        h, begin = h + y if residual else y, end
    assert_close(stack.scan(x, start), h, FINE, "outputs")
    for law in UNCUT_LAWS:
        law(make("hybrid", layers=LAYERS, residual=residual))
    assert [cell.depth for cell in stack.cells] == [(n, 4) for n in (1, 2, 3, 4)]
    assert stack.cells[2].inner.depth == (3, 4)
    assert {name.split(":")[0] for name in stack.gates(x[:, 0], stack.initial_state(start))} == {
        "layer 1", "layer 3", "layer 4",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("3:1", ["gla"] * 3 + ["attention"]),
        ("mamba 1:1 attention x2", ["mamba", "attention"] * 2),
        ("[gla, gla, attention, gla]", ["gla", "gla", "attention", "gla"]),
    ],
)
def test_a_pattern_is_a_list(text: str, names: list[str]) -> None:
    config = CELLS.parse({"name": "hybrid", "layers": text})
    assert [CELLS.name_of(layer) for layer in config.layers] == names
    assert config == CELLS.parse({"name": "hybrid", "layers": names})
    assert CELLS.parse(CELLS.dump(config)) == config


def test_no_layer_and_an_unknown_layer_are_refused() -> None:
    for layers, words in (("", "layers are a list"), ("gla, atention", "no cell 'atention'")):
        with pytest.raises(UserError, match=words):
            CELLS.parse({"name": "hybrid", "layers": layers})


def test_a_layer_has_settings_cuts_equations_and_labels_of_its_own() -> None:
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


def test_blocks_are_rescaled_by_the_depth_of_their_stack() -> None:
    layers = [{"name": "block", "inner": "min_gru", "rescaled": on} for on in (False, True)]
    plain, scaled = (make("hybrid", layers=[layer] * 3) for layer in layers)
    for name, weight in plain.named_parameters():
        factor = 6**-0.5 if name.endswith(("w.out", "w.down")) else 1.0
        assert_close(scaled.get_parameter(name), factor * weight, SAME, name)


def test_a_setting_of_a_layer_is_searched(tmp_path) -> None:
    (tmp_path / "text.txt").write_text("a man runs\na dog sits\n" * 40)
    path = "model.cell.layers.3.inner.heads"
    study = Study(
        name="layers", question="Heads of layer 3?", points=(Point("hybrid", "hybrid"),),
        corpus=f"text:{tmp_path / 'text.txt'}", search={path: [2, 4]},
    )  # fmt: skip
    data = open_data(study)
    point, *_ = resolve(study, data.corpus, data.fields)
    assert point.default_setting == {path: 4}
    assert point.with_setting({path: 2})[0].cell.layers[2].inner.heads == 2
    wrong = dataclasses.replace(study, search={"model.cell.layers.5.heads": [2, 4]})
    with pytest.raises(UserError, match=r"no field 'model\.cell\.layers\.5\.heads' to search"):
        resolve(wrong, data.corpus, data.fields)


def test_a_layer_without_an_initial_state_learns_none() -> None:
    with pytest.raises(UserError, match="attention has no initial state to learn"):
        tiny("recurrent_lm", cell="attention", starts=2)
    with pytest.raises(UserError, match="have no common zero"):
        tiny("recurrent_lm", cell={"name": "hybrid", "layers": "gla, mgu"}, start="zeros")


def test_a_cut_of_a_layer_is_a_number_in_a_pack() -> None:
    layers = [{"name": "mgu", "cuts": []}, "attention"]
    whole = zoo.config("recurrent_lm", width=4, cell={"name": "hybrid", "layers": layers})
    cut = zoo.change(whole, {"cell": {"layers": {"1": {"cuts": ["state_to_gate"]}}}})
    recipe = Recipe(batch=5)
    corpus = random_corpus(tiny("recurrent_lm"))
    assert pack_key(whole, recipe) == pack_key(cut, recipe)
    alone, packed = (
        [Training(zoo.build(c, corpus.task, 0), recipe, 0) for c in (whole, cut)] for _ in range(2)
    )
    list(KeptTrainers().fit(packed, corpus, 2))
    for single, member in zip(alone, packed, strict=True):
        list(fit(single, corpus, 2))
        assert_trainings_equal(member, single)
    weights = zip(*(t.model.parameters() for t in (alone[0], packed[0])), strict=True)
    assert max(float((a - b).detach().abs().max()) for a, b in weights) < 1e-5
    assert not torch.equal(*(t.model.embedding.weight for t in alone))
