"""Public functions x wrong values: one line; scalars of numpy and torch are read."""

import operator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import lmzoo
from tests.cases import rows
from tests.toy_study import sentences as sentences

# Users give frames of pandas, which lmzoo does not need.
pd = pytest.importorskip("pandas")
LONG = 300 * "x"
"""No name of a file."""
MODEL_CALLS = rows("arguments.toml", "calls_of_a_model")
CALLS = rows("arguments.toml", "calls")
NAMED = rows("arguments.toml", "named")
PLAN = {"pilot": {"v": [1], "l": [1]}, "by": "v", "metric": "l", "effect": 1.0}
WRONG = rows("arguments.toml", "wrong")
# What a table in TOML cannot hold.
for name in ("fit", "sample", "score", "save"):
    MODEL_CALLS[name].append(None)
for name in ("build", "load_run", "rank"):
    CALLS[name].append(LONG)
for values in CALLS.values():
    values.append(None)
CALLS["build"].append(Path("gru"))
CALLS["Command"].append(Path("a.py"))
WRONG["plan"] += [{"effect": None}, {"by": np.ones(2)}]
WRONG["plan"] = [PLAN | wrong for wrong in WRONG["plan"]]
WRONG["Recipe"].append({"batch": None})
WRONG["FloatRange"].append({"low": None, "high": 3})
WRONG["tune.trainable"].append({"row": None})
MODULE = torch.nn.Linear(2, 2)
WRONG["apply_cut"] = [{"module": MODULE, "name": 3}]
WRONG["audit"] = [
    {"model": MODULE, "vocab": 5, "logits": torch.ones(2)},
    {"model": pl.DataFrame(), "vocab": 5},
    {"model": "DLM46", "length": 10**30},
]


def each(table):
    """Return every name with each of its values."""
    pairs = []
    for name, values in table.items():
        pairs += [(name, value) for value in values]
    return pairs


@pytest.fixture(scope="module")
def model(sentences: Path) -> lmzoo.TextModel:
    return lmzoo.build("DLM46", sentences, width=4)


@pytest.mark.parametrize(("name", "value"), each(MODEL_CALLS))
def test_a_wrong_value_of_a_model_is_a_line(model, name, value):
    method = getattr(model, name)
    with pytest.raises(lmzoo.UserError) as error:
        method(value)
    # What a notebook shows.
    assert error.value._render_traceback_() == [f"UserError: {error.value}"]


@pytest.mark.parametrize(("name", "value"), each(CALLS))
def test_a_wrong_value_is_a_line(name, value):
    function = getattr(lmzoo, name)
    with pytest.raises(lmzoo.UserError):
        function(value)


@pytest.mark.parametrize(("name", "fields"), each(WRONG))
def test_a_wrong_named_value_is_a_line(name, fields):
    # Some names have a dot.
    function = operator.attrgetter(name)(lmzoo)
    with pytest.raises(lmzoo.UserError) as error:
        function(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_name_suggests_the_near_one(name):
    function = getattr(lmzoo, name)
    with pytest.raises(lmzoo.UserError, match=r"; near: |; known: "):
        function(**NAMED[name])


@pytest.mark.parametrize("value", [None, 3, pl.Series([1.0]), pd.Series([1.0]), np.ones(3)])
def test_results_that_are_no_table_are_refused(value):
    with pytest.raises(lmzoo.UserError, match="give a frame, columns, rows or a path"):
        lmzoo.judge(value, by="v", metric="loss")


def test_a_lazy_frame_and_an_index_are_read():
    rows = {"v": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1], "loss": [1.0, 1.1, 2.0, 2.1]}
    wanted = lmzoo.judge(rows, by="v", metric="loss")
    lazy = pl.LazyFrame(rows)
    indexed = pd.DataFrame(rows).set_index(["v", "seed"])
    for form in (lazy, indexed):
        found = lmzoo.judge(form, by="v", metric="loss")
        assert found.equals(wanted)


@pytest.mark.parametrize("seed", [np.int64(3), np.float32(3), torch.tensor(3), 3.0])
def test_scalars_are_the_numbers_that_they_are(model, seed):
    first = lmzoo.build("DLM46", model.corpus, seed=seed, width=4)
    second = lmzoo.build("DLM46", model.corpus, seed=3, width=4)
    for name, weight in first.module.named_parameters():
        assert second.module.get_parameter(name).equal(weight)
    assert lmzoo.Recipe(batch=seed) == lmzoo.Recipe(batch=3)
    assert lmzoo.FloatRange(seed, 4) == lmzoo.FloatRange(3, 4)


def test_values_compare_and_hash(model):
    point = lmzoo.Point("a", "DLM46", {"width": 4})
    same = lmzoo.Point("a", "DLM46", {"width": 4})
    assert {point, same} == {point}
    assert model.test() == model.test()


@pytest.fixture
def two_rows(model):
    """Return the tokens and the lengths of two test sequences."""
    part = model.corpus.test
    return part.tokens[:2], part.lengths[:2]


def test_a_module_is_called_like_any_other(model, two_rows):
    tokens, lengths = two_rows
    weights = dict(model.module.named_parameters())
    called = torch.func.functional_call(model.module, weights, two_rows)
    assert called.equal(model.module.log_prob(tokens, lengths))


# The checks of shapes, which only tests have, break the graph where a gradient is no leaf's.
@pytest.mark.filterwarnings("default:The .grad attribute")
@pytest.mark.slow
def test_a_module_with_kernels_is_compiled(model, two_rows):
    tokens, lengths = two_rows
    compiled = torch.compile(model.module, backend="aot_eager")
    actual = compiled(tokens, lengths)
    torch.testing.assert_close(actual, model.module(tokens, lengths))


def test_a_misplaced_argument_is_a_line(model):
    with pytest.raises(lmzoo.UserError, match=r"^build: too many positional .*; write build\("):
        lmzoo.build("DLM46", model.corpus, lmzoo.Recipe())  # type: ignore[misc]
