from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lmzoo import zoo
from lmzoo.cells.mgru import MGRU
from lmzoo.cells.mgu import MGU
from lmzoo.contract import MODELS, Score
from lmzoo.emissions.vector import VectorEmission
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm
from lmzoo.seeding import derive_seed, initialise
from tests.tiny import quick, row_names, tiny

plain = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=6,
)
trees = st.dictionaries(st.sampled_from(["a", "b", "c"]), plain, max_size=3)


@quick
@given(trees)
def test_laying_nothing_or_itself_over_changes_nothing(base: dict) -> None:
    assert zoo.overlay(base, {}) == base == zoo.overlay(base, base)


@quick
@given(trees, trees)
def test_what_is_laid_over_wins_and_stays(base: dict, over: dict) -> None:
    once = zoo.overlay(base, over)
    assert zoo.overlay(once, over) == once
    for key, value in {**base, **over}.items():
        if not (isinstance(base.get(key), dict) and isinstance(over.get(key), dict)):
            assert once[key] == value


def test_a_part_of_another_name_starts_afresh() -> None:
    base = {"cell": {"name": "mgu", "cuts": [0]}, "width": 4}
    assert zoo.overlay(base, {"cell": {"cuts": [1]}})["cell"] == {"name": "mgu", "cuts": [1]}
    assert zoo.overlay(base, {"cell": {"name": "gru"}})["cell"] == {"name": "gru"}
    assert zoo.overlay(base, {"cell": "gru"})["cell"] == "gru"


def test_rows_are_found_by_name_and_by_alias() -> None:
    for name in zoo.names():
        entry = zoo.row(name)
        assert entry.name == name
        assert all(zoo.row(known) is entry for alias in entry.aliases for known in (alias,))
    assert zoo.row("dlm46") is zoo.row("mutable_mgu_mixture")


def test_a_alias_belongs_to_one_row() -> None:
    count = Counter(alias for name in zoo.names() for alias in zoo.row(name).aliases)
    assert not [alias for alias, times in count.items() if times > 1]


def test_names_are_grouped_by_family() -> None:
    families = [zoo.row(name).family for name in zoo.names()]
    assert families == sorted(families)
    assert len(set(zoo.names())) == len(zoo.names())


@pytest.mark.parametrize("name", zoo.names())
def test_every_row_can_be_described(name: str) -> None:
    entry = zoo.row(name)
    assert entry.summary.endswith(".")
    assert "\n" not in entry.summary
    assert entry.source
    assert set(entry.document.replace(" ", "").split(",")) <= {"S0", "S1", "S2", "S3", "S4"}
    if entry.model is not None:
        assert MODELS[entry.model].score is Score(entry.score)


@pytest.mark.parametrize("name", ["recurent_lm", "DLM46x", "LSTM"])
def test_an_unknown_row_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=name):
        zoo.row(name)


def test_fields_override_and_reach_in() -> None:
    config = zoo.config("DLM23", width=8, cell={"name": "mgu", "cuts": [4]}, norm="l2")
    assert (config.width, config.cell, config.norm) == (8, MGU.Config(cuts=[4]), Norm.L2)
    assert config.emission == VectorEmission.Config()  # the preset's own
    assert zoo.config("DLM46", cell={"cuts": "0,2"}).cell == MGU.Config(cuts=[0, 2])


def test_numbers_reach_into_a_cell_whose_fields_are_set() -> None:
    for cell in ({"mutations": [4, 6]}, {"name": "mgru", "mutations": "4,6"}):
        assert zoo.config("DLM47", cell=cell).cell == MGRU.Config(mutations=[4, 6])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"width": 0}, "width: .*got 0"),
        ({"cell": {"cuts": ["reset"]}}, "cell: .*no cut 'reset'"),
        ({"cell": {"cuts": [6, 7]}}, r"cuts carry \(6\), write \(7\) leave h = 0"),
        ({"kernel": 3}, "kernel"),
    ],
)
def test_a_wrong_field_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        zoo.config("DLM46", **fields)


@pytest.mark.parametrize("name", row_names())
def test_a_preset_is_its_model_with_fields_set(name: str) -> None:
    entry = zoo.row(name)
    assert zoo.config(name) == zoo.config(entry.model, **entry.fields)


def test_variants_that_share_a_module_share_its_first_weights() -> None:
    one, other = tiny("recurrent_lm", cell="gru"), tiny("recurrent_lm", cell="mgu", starts=2)
    theirs = other.state_dict()
    shared = [key for key in one.state_dict() if key.split(".")[0] in ("embedding", "emission")]
    assert len(shared) == 5
    assert all(one.state_dict()[key].equal(theirs[key]) for key in shared)


def test_each_module_draws_from_a_stream_of_its_own() -> None:
    pair = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    initialise(pair, 0)
    assert not pair["one"].weight.equal(pair["two"].weight)
    alone = nn.ModuleDict({"two": nn.Linear(3, 3)})
    initialise(alone, 0)
    assert alone["two"].weight.equal(pair["two"].weight)


def test_initialising_leaves_the_global_generator_alone() -> None:
    model = tiny("DLM26")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        initialise(model, 7)
        assert torch.rand(3).equal(expected)


@quick
@given(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=3)), min_size=2, unique=True))
def test_streams_of_other_names_are_other_seeds(named: list[tuple[int, str]]) -> None:
    seeds = [derive_seed(seed, name) for seed, name in named]
    assert len(set(seeds)) == len(named)
    assert all(0 <= seed < 2**63 for seed in seeds)
