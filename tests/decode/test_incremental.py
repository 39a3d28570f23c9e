"""Decoding one token computes nothing twice: the cost per step, counted in tensor elements."""

import re
from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS, START, LanguageModel
from lmzoo.kernels.cpu import blas
from tests.cases import cases, parametrize, rows
from tests.tiny import row_names, sources, tiny

STEPS = 6

CACHING = [name for name in row_names() if zoo.row(name).family == "attention"]
CACHING += ["transformer_encdec", "hybrid"]


def overrides_advance(name):
    """Return True if the row's model has an `advance` of its own."""
    model = zoo.row(name).model
    if model is None:
        return False
    return MODELS[model].advance is not LanguageModel.advance


STATEFUL = []
for name in row_names():
    if name not in CACHING and overrides_advance(name):
        STATEFUL.append(name)

RECOMPUTING = {"count", "ngram", "latent-markov", "autoencoder"}
"""Families that may compute each step from the prefix, although their state has a fixed size."""

GROWING = {"attention", "hybrid"}
"""Cells that keep every token."""

ONE_ROW_OF_EACH_MODEL = {zoo.row(name).model: name for name in STATEFUL}
RECURRENT = rows("decode/cases.toml", "recurrent")
RECURRENT += [(name, {}) for name in ONE_ROW_OF_EACH_MODEL.values()]
for cell in CELLS:
    if cell not in GROWING:
        fields = {"cell": cell, "starts": 2}
        RECURRENT.append(("recurrent_lm", fields))
ATTENTION = rows("decode/cases.toml", "attention")
ATTENTION += [(name, {}) for name in CACHING]

SOURCE_READERS = {
    "seq2seq": "source_embedding|encoder",
    "seq2seq_dot_attention": "source_embedding|encoder|backward_encoder|fold",
    "transformer_encdec": r"source_|body\.encoder|body\.decoder\.\d+\.attention\.(key|value)",
}
"""Row -> regex of the names of the parameters that are applied to the source only."""


class OutputCounter(TorchDispatchMode):
    """Counts the elements of all tensors that operations return, views excluded."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        # A view computes nothing.
        if func.is_view:
            return result
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements += leaf.numel()
        return result


def sources_of(model):
    """Return two sources if the model is conditional: a full one and one of a single token."""
    if model.conditional:
        return sources(model.task, 2)
    return ()


@torch.no_grad()
def elements_per_step(model, steps, *source):
    """Return the elements computed by each `advance` (not `begin`) for two sequences."""
    state = model.eval().begin(2, *source)
    token = torch.tensor([START, START])
    counts = []
    for _ in range(steps):
        with OutputCounter() as counter:
            _, state = model.advance(state, token)
        counts.append(counter.elements)
    return counts


@torch.no_grad()
def vectors_per_step(model, steps, *source):
    """Return the vectors that pass through each linear layer and LayerNorm, for each `advance`."""
    counts = []
    names = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            names[module] = name

    def count(module, inputs, output):
        (x,) = inputs
        vectors = x.numel() // x.shape[-1]
        counts[-1][names[module]] += vectors

    state = model.eval().begin(2, *source)
    token = torch.tensor([START, START])
    hooks = [module.register_forward_hook(count) for module in names]
    for _ in range(steps):
        counts.append(Counter())
        _, state = model.advance(state, token)
    for hook in hooks:
        hook.remove()
    return counts


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch):
    """Use torch operations only: the counter does not see the outputs of kernels."""
    monkeypatch.setattr(blas, "HAS_PRODUCTS", False)


def test_rows_with_a_state_size_override_advance():
    """Attention to a window has a state of fixed size, too."""
    for name in row_names():
        state_size = tiny(name).state_size
        may_recompute = zoo.row(name).family in RECOMPUTING
        if state_size is None or name in CACHING or may_recompute:
            continue
        assert overrides_advance(name), name


def test_rows_that_override_advance_have_a_state_size():
    for name in STATEFUL:
        assert tiny(name).state_size is not None, name


RECURRENT_CASES = parametrize(("name", "fields"), RECURRENT)
ATTENTION_CASES = parametrize(("name", "fields"), ATTENTION)


@RECURRENT_CASES
def test_a_recurrent_step_costs_the_same_at_every_position(name, fields):
    model = tiny(name, length=STEPS + 1, **fields)
    source = sources_of(model)
    first, second, *later = elements_per_step(model, STEPS, *source)
    assert first <= second  # a running standard deviation needs fewer operations at first
    assert set(later) == {second}


@ATTENTION_CASES
def test_attention_computes_each_key_once(name, fields):
    model = tiny(name, length=STEPS + 1, **fields)
    source = sources_of(model)
    _, second, *later = vectors_per_step(model, STEPS, *source)
    assert any("key" in name for name in second)
    for step in later:
        assert step == second
    # Only the attention over the cache grows: by one key per step.
    _, *costs = elements_per_step(model, STEPS, *source)
    growth = {later - earlier for earlier, later in pairwise(costs)}
    assert len(growth) == 1


@torch.no_grad()
@cases("decode/cases.toml", "conditional", "name, fields")
def test_a_source_is_read_once_before_the_first_token(name, fields):
    """NaN in the parameters that read the source, set after `begin`, must have no effect."""
    model = tiny(name, **fields)
    source = sources_of(model.eval())
    token = torch.tensor([START, START])
    first = model.begin(2, *source)
    default = LanguageModel.begin(model, 2, *source)
    expected_first, second = model.advance(first, token)
    expected_second, _ = model.advance(second, token)
    for parameter, values in model.named_parameters():
        if re.match(SOURCE_READERS[name], parameter):
            # Whatever reads it again is NaN.
            values.fill_(torch.nan)
    # The default reads the source at each step, so the test can fail.
    recomputed, _ = LanguageModel.advance(model, default, token)
    assert recomputed.isnan().all()
    actual, _ = model.advance(first, token)
    assert actual.equal(expected_first)
    actual, _ = model.advance(second, token)
    assert actual.equal(expected_second)
