"""Every model of the zoo, so small that all its sequences can be listed.

Tolerances. A log-probability here is a few nats and the result of some tens of operations in
float32, which has about seven digits. The same operations on the same shapes agree to `SAME`.
Other shapes may be summed in another order and agree to `CLOSE`. In float64, results agree to
`FINE`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.contract import START, LanguageModel, Task

SAME, CLOSE, FINE = 1e-6, 2e-5, 1e-10

TASK = Task(vocab=3, length=4, source_vocab=3, source_length=3)
"""Small enough to list all 3³ sequences."""

TINY_SIZES: Mapping[str, float] = {
    **dict.fromkeys(("code", "depth", "groups", "heads", "layers", "nonterminals", "order"), 2),
    **dict.fromkeys(("preterminals", "slots", "span", "stride", "window"), 2),
    **{"components": 3, "density": 0.5, "states": 3, "width": 4},
}
"""Tiny values of config fields, by field name, for nested configs too."""


def shrink(fields: Mapping[str, Any], sizes: Mapping[str, float] = TINY_SIZES) -> dict[str, Any]:
    """Return the fields with tiny sizes; None and 0 mean that a part is off, and are kept."""
    return {
        key: shrink(value, sizes)
        if isinstance(value, Mapping)
        else sizes[key]
        if key in sizes and value and not isinstance(value, list)
        else [shrink(part, sizes) for part in value]
        if isinstance(value, list) and value and isinstance(value[0], Mapping)
        else value
        for key, value in fields.items()
    }


def tiny(
    name: str, vocab: int = TASK.vocab, length: int = TASK.length, seed: int = 0, **fields: Any
) -> LanguageModel:
    """Return the row's model at tiny size, with `fields` set; closed-form models are fitted."""
    small = shrink(to_dict(zoo.config(name)))
    config = zoo.config(name, **zoo.overlay(small, fields))
    model = zoo.build(config, replace(TASK, vocab=vocab, length=length), seed)
    if model.closed_form:
        model.fit_closed_form(*batch(model.task, seed=3))
    return model


def batch(task: Task, count: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random tokens and lengths; the first length is the maximum, the second is 2."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(task.vocab, (count, task.length), generator=generator)
    tokens[:, 0] = START
    lengths = torch.randint(2, task.length + 1, (count,), generator=generator)
    lengths[0], lengths[1:2] = task.length, 2
    return tokens, lengths


def sources(task: Task, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random sources and lengths; the first length is the maximum, the second is 1."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(task.source_vocab, (count, task.source_length), generator=generator)
    lengths = torch.randint(1, task.source_length + 1, (count,), generator=generator)
    lengths[0], lengths[1:2] = task.source_length, 1
    return source, lengths


def default_source(model: LanguageModel, count: int) -> tuple[Tensor, ...]:
    """Return the same source `count` times for a conditional model, () for other models."""
    if not model.conditional:
        return ()
    source, lengths = sources(model.task, 1)
    return source.expand(count, -1), lengths.expand(count)


def every_sequence(task: Task) -> tuple[Tensor, Tensor]:
    """Return all V^(T-1) sequences of full length."""
    rest = torch.cartesian_prod(*[torch.arange(task.vocab)] * (task.length - 1))
    rest = rest.reshape(-1, task.length - 1)
    tokens = torch.cat([torch.full((len(rest), 1), START), rest], dim=1)
    return tokens, torch.full((len(rest),), task.length)
