r"""Train a model on independent uniform tokens, on which only a leak can beat the entropy.

The tokens are uniform over V symbols and newly drawn for every training step, so

    E[ −log P(s_t | s_<t) ] ≥ log V            for every causal, normalised P

with equality for the uniform distribution. A model with a lower loss reads the tokens that it
predicts. An oracle that knows the bag of tokens but not their order scores 1.791 for 20 symbols and
sequences of 19 (`lmzoo.inspect.leak_budget`).
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import START, Task
from lmzoo.data.corpus import Sequences
from lmzoo.data.vocabulary import SPECIALS
from lmzoo.functional.sequence import full_lengths
from lmzoo.inspect.leak_budget import uniform_bag_floor
from lmzoo.laws.tiny import seeded
from lmzoo.train.evaluate import evaluate
from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.recipe import Recipe
from lmzoo.train.step import Step

MARGIN = 0.02
"""Tolerance in nats per token. The standard error of the test loss is far smaller for models that
are nearly uniform."""


@dataclass(frozen=True)
class IidFloor:
    """The loss of a model on independent uniform tokens, and two references."""

    loss: float
    """Loss on new sequences, in nats per token."""
    floor: float
    """log V, the least loss of a causal model."""
    oracle: float
    """Loss of the oracle that knows the bag of tokens of each sequence."""
    steps: int

    @property
    def fault(self) -> str:
        """A message if the loss is too low for a causal density, else ''."""
        if self.loss >= self.floor - MARGIN:
            return ""
        return (
            f"{self.loss:.3f} nats on independent uniform tokens of entropy {self.floor:.3f}: "
            "the model reads the tokens that it predicts"
        )


def iid_floor(
    config: Any,
    *,
    symbols: int = 20,
    length: int = 20,
    steps: int = 300,
    batch: int = 100,
    lr: float = 1e-2,
    seed: int = 0,
) -> IidFloor:
    """Build a model, train it on independent tokens of `symbols` kinds, and score new ones."""
    task = Task(vocab=symbols + len(SPECIALS), length=length)
    model = zoo.build(config, task, seed)
    train_seed = derive_seed(seed, "iid floor", "train")
    batches = _draw_batches(symbols, length, batch, train_seed)
    if model.closed_form:
        first = itertools.islice(batches, min(steps, 100))
        tokens = torch.cat([tokens for tokens, _ in first])
        model.fit_closed_form(tokens, full_lengths(tokens))
    else:
        recipe = Recipe(lr=lr)
        optimiser = make_optimiser(recipe, model)
        step = Step(model.train(), recipe, optimiser)
        # Dropout draws from the global generator, whose state belongs to the caller.
        with seeded(derive_seed(seed, "noise")):
            for tokens, lengths in itertools.islice(batches, steps):
                step(lr, None, tokens, lengths)
    # New tokens: those of training may be known by heart.
    test_seed = derive_seed(seed, "iid floor", "test")
    new_batches = _draw_batches(symbols, length, 2000, test_seed)
    tokens, lengths = next(new_batches)
    test = Sequences(tokens, lengths)
    return IidFloor(
        loss=evaluate(model, test).token,
        floor=math.log(symbols),
        # `<start>` is not scored.
        oracle=uniform_bag_floor(symbols, length - 1),
        steps=steps,
    )


def _draw_batches(
    symbols: int, length: int, rows: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    first = len(SPECIALS)
    while True:
        tokens = torch.randint(first, first + symbols, (rows, length), generator=generator)
        tokens[:, 0] = START
        yield tokens, full_lengths(tokens)
