"""Decoding one token computes nothing twice: the cost per step, counted in tensor elements."""

import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS, START, LanguageModel
from lmzoo.kernels.cpu import blas
from tests.tiny import row_names, sources, tiny

STEPS = 6

CACHING = [
    *(name for name in row_names() if zoo.row(name).family == "attention"),
    *("transformer_encdec", "hybrid"),
]
"""Rows whose state holds a key and a value per token."""


def overrides_advance(name: str) -> bool:
    """Return True if the row's model has an `advance` of its own."""
    model = zoo.row(name).model
    return model is not None and MODELS[model].advance is not LanguageModel.advance


STATEFUL = [name for name in row_names() if overrides_advance(name) and name not in CACHING]

RECOMPUTING = {"count", "ngram", "latent-markov", "autoencoder"}
"""Families that may compute each step from the prefix, although their state has a fixed size."""

GROWING = {"attention", "hybrid"}
"""Cells that keep every token."""

ONE_ROW_OF_EACH_MODEL = {zoo.row(name).model: name for name in STATEFUL}.values()
RECURRENT: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ONE_ROW_OF_EACH_MODEL),
    *(("recurrent_lm", {"cell": cell, "starts": 2}) for cell in CELLS if cell not in GROWING),
    ("recurrent_lm", {"norm": "time_std_causal"}),
    ("recurrent_lm", {"num_layers": 3, "starts": 2}),
    ("gru_vae", {"norm": "time_std_causal", "cell": "lstm"}),
    ("seq2seq_dot_attention", {"bidirectional": True}),
]

ATTENTION: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in CACHING),
    ("transformer_encdec", {"norm": "pre", "positions": "learned"}),
    ("modern_decoder", {"cuts": ["window"]}),
    *(("transformer_decoder", {"positions": kind}) for kind in ("concat", "learned", "none")),
    ("star_transformer_causal", {"relay": False}),
    ("set_transformer_causal", {"points": 0}),
]

SOURCE_READERS = {
    "seq2seq": "source_embedding|encoder",
    "seq2seq_dot_attention": "source_embedding|encoder|backward_encoder|fold",
    "transformer_encdec": r"source_|body\.encoder|body\.decoder\.\d+\.attention\.(key|value)",
}
"""Row -> regex of the names of the parameters that are applied to the source only."""


class OutputCounter(TorchDispatchMode):
    """Counts the elements of all tensors that operations return, views excluded."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            leaves = tree_leaves(result)
            self.elements += sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))
        return result


def sources_of(model: LanguageModel) -> tuple[torch.Tensor, ...]:
    """Return two sources if the model is conditional: a full one and one of a single token."""
    if model.conditional:
        return sources(model.task, 2)
    return ()


@torch.no_grad()
def elements_per_step(model: LanguageModel, steps: int, *source: torch.Tensor) -> list[int]:
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
def vectors_per_step(
    model: LanguageModel, steps: int, *source: torch.Tensor
) -> list[dict[str, int]]:
    """Return the vectors that pass through each linear layer and LayerNorm, for each `advance`."""
    counts: list[dict[str, int]] = []
    names = {m: n for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.LayerNorm)}

    def count(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        (x,) = inputs
        counts[-1][names[module]] += x.numel() // x.shape[-1]

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
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use torch operations only: the counter does not see the outputs of kernels."""
    monkeypatch.setattr(blas, "HAS_PRODUCTS", False)


def test_rows_with_a_state_size_override_advance():
    with_size = [name for name in row_names() if tiny(name).state_size is not None]
    # Attention to a window has a state of fixed size, too.
    recomputing = [n for n in with_size if zoo.row(n).family in RECOMPUTING]
    without = {*CACHING, *(name for name in recomputing if not overrides_advance(name))}
    assert [name for name in with_size if name not in without] == STATEFUL


@pytest.mark.parametrize(("name", "fields"), RECURRENT)
def test_a_recurrent_step_costs_the_same_at_every_position(name, fields):
    model = tiny(name, length=STEPS + 1, **fields)
    first, second, *later = elements_per_step(model, STEPS, *sources_of(model))
    assert first <= second  # a running standard deviation needs fewer operations at first
    assert set(later) == {second}


@pytest.mark.parametrize(("name", "fields"), ATTENTION)
def test_attention_computes_each_key_once(name, fields):
    model = tiny(name, length=STEPS + 1, **fields)
    source = sources_of(model)
    _, second, *later = vectors_per_step(model, STEPS, *source)
    assert any("key" in name for name in second)
    assert all(step == second for step in later)
    # Only the attention over the cache grows: by one key per step.
    cost = elements_per_step(model, STEPS, *source)[1:]
    growth = [later - earlier for earlier, later in pairwise(cost)]
    assert len(set(growth)) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *((name, {}) for name in SOURCE_READERS),
        ("seq2seq", {"cell": "lstm"}),
        ("seq2seq_dot_attention", {"bidirectional": True}),
        ("transformer_encdec", {"norm": "pre", "positions": "learned"}),
    ],
)
def test_a_source_is_read_once_before_the_first_token(name, fields):
    """NaN in the parameters that read the source, set after `begin`, must have no effect."""
    model = tiny(name, **fields)
    source = sources_of(model.eval())
    token = torch.tensor([START, START])
    first = model.begin(2, *source)
    default = LanguageModel.begin(model, 2, *source)
    _, second = model.advance(first, token)
    expected = [model.advance(state, token)[0] for state in (first, second)]
    for parameter, values in model.named_parameters():
        if re.match(SOURCE_READERS[name], parameter):
            values.fill_(torch.nan)
    assert LanguageModel.advance(model, default, token)[0].isnan().all()
    for state, dense in zip((first, second), expected, strict=True):
        assert model.advance(state, token)[0].equal(dense)
