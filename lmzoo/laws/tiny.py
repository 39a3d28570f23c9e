"""What the laws share: tiny models and their data, calls with fixed noise, comparisons of tensors.

A tiny model is one of the zoo, so small that all its sequences can be listed.

Tolerances. A log-probability here is a few nats and the result of some tens of operations in
float32, which has about seven digits. The same operations on the same shapes agree to `SAME`.
Other shapes may be summed in another order and agree to `CLOSE`. In float64, results agree to
`FINE`.
"""

import contextlib
import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.contract import START, LanguageModel, Task
from lmzoo.functional.parameters import initialise
from lmzoo.functional.sequence import full_lengths
from lmzoo.functional.token_scores import scored_mask

SAME = 1e-6
CLOSE = 2e-5
FINE = 1e-10

TASK = Task(
    vocab=3,
    length=4,
    source_vocab=3,
    source_length=3,
)
"""Small enough to list all 3³ sequences."""


def laws_of(module: object) -> list[Callable[..., None]]:
    """Return all laws that a module defines, in their order."""
    return [law for name, law in vars(module).items() if name.startswith("law_")]


TINY_SIZES: Mapping[str, float] = tomllib.loads(
    Path(__file__).with_name("tiny_sizes.toml").read_text("utf-8")
)
"""Tiny values of config fields, by field name, for nested configs too."""


def shrink(fields: Mapping[str, Any], sizes: Mapping[str, float] = TINY_SIZES) -> dict[str, Any]:
    """Return the fields with tiny sizes; None and 0 mean that a part is off, and are kept."""
    return {key: _shrunk(value, sizes.get(key), sizes) for key, value in fields.items()}


def _shrunk(value: Any, size: float | None, sizes: Mapping[str, float]) -> Any:
    if isinstance(value, Mapping):
        return shrink(value, sizes)
    if isinstance(value, list):
        return [_shrunk(part, None, sizes) for part in value]
    # A size of 0 or None switches a part off.
    if value and size is not None:
        return size
    return value


def tiny(
    name: str,
    vocab: int = TASK.vocab,
    length: int = TASK.length,
    seed: int = 0,
    **fields: Any,
) -> LanguageModel:
    """Return the row's model at tiny size, with `fields` set; closed-form models are fitted."""
    small = shrink(to_dict(zoo.config(name)))
    changed = zoo.overlay(small, fields)
    config = zoo.config(name, **changed)
    task = replace(TASK, vocab=vocab, length=length)
    model = zoo.build(config, task, seed)
    if model.closed_form:
        # Another batch than the laws score.
        tokens, lengths = batch(model.task, seed=3)
        model.fit_closed_form(tokens, lengths)
    return model


def batch(task: Task, count: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random tokens and lengths; the first length is the maximum, the second is 2."""
    tokens, lengths = _drawn(task.vocab, 2, task.length, count, seed)
    tokens[:, 0] = START
    return tokens, lengths


def sources(task: Task, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random sources and lengths; the first length is the maximum, the second is 1."""
    return _drawn(task.source_vocab, 1, task.source_length, count, seed)


def _drawn(vocab: int, least: int, most: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocab, (count, most), generator=generator)
    lengths = torch.randint(least, most + 1, (count,), generator=generator)
    # The longest and the shortest sequence are always there.
    lengths[0] = most
    lengths[1:2] = least
    return tokens, lengths


def default_source(model: LanguageModel, count: int) -> tuple[Tensor, ...]:
    """Return the same source `count` times for a conditional model, () for other models."""
    if not model.conditional:
        return ()
    # One source for all rows: laws change the targets.
    source, lengths = sources(model.task, 1)
    return source.expand(count, -1), lengths.expand(count)


def random_source(model: LanguageModel, count: int) -> tuple[Tensor, ...]:
    """Return another source for each row of a conditional model, () for other models."""
    if model.conditional:
        return sources(model.task, count)
    return ()


def every_sequence(task: Task) -> tuple[Tensor, Tensor]:
    """Return all V^(T-1) sequences of full length."""
    vocabulary = range(task.vocab)
    words = itertools.product(vocabulary, repeat=task.length - 1)
    rest = torch.tensor(list(words))
    tokens = nn.functional.pad(rest, (1, 0), value=START)
    return tokens, full_lengths(tokens)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator of the CPU; afterwards it is the caller's again."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def log_prob(
    model: LanguageModel,
    tokens: Tensor,
    lengths: Tensor,
    *source: Tensor,
    training: bool = False,
    noise: int = 0,
) -> Tensor:
    """Return the scores, without gradients; `noise` is the seed of dropout and sampling.

    A conditional model without a source gets `default_source`.
    """
    if not source:
        source = default_source(model, len(tokens))
    model.train(training)
    # Laws compare calls: they must draw the same noise.
    with seeded(noise), torch.no_grad():
        return model.log_prob(tokens, lengths, *source)


def next_log_prob(model: LanguageModel, prefix: Tensor, *source: Tensor) -> Tensor:
    """Return the distribution of the next token, in evaluation mode."""
    if not source:
        source = default_source(model, len(prefix))
    with torch.no_grad():
        return model.eval().next_log_prob(prefix, *source)


def loss(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return nats per scored token, with gradients, in the current mode of the model."""
    source = default_source(model, len(tokens))
    scores = model.log_prob(tokens, lengths, *source)
    scored = scored_mask(tokens, lengths)
    return -scores.sum() / scored.sum()


def training_loss(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the negative training objective per scored token, with gradients."""
    source = default_source(model, len(tokens))
    objective = model.objective(tokens, lengths, *source)
    scored = scored_mask(tokens, lengths)
    return -objective.sum() / scored.sum()


def new_model(model: LanguageModel, seed: int, task: Task | None = None) -> LanguageModel:
    """Return a model of the same config; all weights are NaN before they are drawn."""
    with torch.random.fork_rng(devices=[]):
        other = type(model)(model.config, task or model.task)
    # Weights of the constructor could hide that `reset_parameters` forgets one.
    with torch.no_grad():
        for parameter in other.parameters():
            # What is not drawn afterwards stays NaN, and fails every law.
            parameter.fill_(torch.nan)
    initialise(other, seed)
    return other


def assert_close(actual: Tensor, expected: Tensor, tolerance: float, name: str):
    """Assert that both tensors agree to an absolute tolerance; NaN agrees with nothing."""
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, not {expected.shape}"
    gap = (actual - expected).abs()
    assert (gap <= tolerance).all(), f"{name}: differs by {gap.max():.3g}, more than {tolerance:g}"
