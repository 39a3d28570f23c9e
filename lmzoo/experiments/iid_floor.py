r"""Where nothing can be known, whoever knows something has looked.

The tokens are independent and uniform over V symbols, fresh ones at every step, so that

    E[ −log P(s_t | s_<t) ] ≥ log V            for every causal, normalised P

with equality for the uniform one. A model that comes out lower reads its answers. How
low it may come is `leak_budget`'s business: an oracle that knows the bag of tokens, but
not their order, stands at 1.791 for 20 symbols and sequences of 19.

zoo.md 1.7 (test C3).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.audit.leak_budget import uniform_bag_floor
from lmzoo.contract import START, LanguageModel, Task, stream
from lmzoo.data.corpus import Sequences
from lmzoo.data.vocabulary import SPECIALS
from lmzoo.train.evaluate import evaluate
from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.recipe import Recipe

MARGIN = 0.02
"""Nats per token that the finite sample of the test may take off: its standard error is
far smaller for any model that is not far from uniform."""


@dataclass(frozen=True)
class IidFloor:
    """What a model scores where log V is the least an honest one can."""

    loss: float
    """Nats per token on fresh sequences."""
    floor: float
    """log V, of the V symbols."""
    oracle: float
    """Of the oracle that knows the bag of each sequence's tokens."""
    steps: int

    @property
    def fault(self) -> str:
        """What is wrong, '' if the loss is one that a causal density may have."""
        if self.loss >= self.floor - MARGIN:
            return ""
        return (
            f"{self.loss:.3f} nats on independent uniform tokens, {self.floor:.3f} is the least "
            "a model can score that does not see them"
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
    """Train on fresh independent tokens for so many steps, and score fresh ones."""
    model = zoo.build(config, Task(vocab=symbols + len(SPECIALS), length=length), seed)
    return measure(model, symbols=symbols, steps=steps, batch=batch, lr=lr, seed=seed)


def measure(
    model: LanguageModel,
    *,
    symbols: int,
    steps: int,
    batch: int = 100,
    lr: float = 1e-2,
    seed: int = 0,
) -> IidFloor:
    """The same for a model that is built already; it is trained further."""
    fresh = _draws(symbols, model.task.length, batch, stream(seed, "iid floor", "train"))
    if model.closed_form:
        data = [next(fresh) for _ in range(min(steps, 100))]
        tokens = torch.cat([tokens for tokens, _ in data])
        model.fit_closed_form(tokens, torch.full((len(tokens),), model.task.length))
    else:
        _train(model, fresh, steps, lr, seed)
    test = next(_draws(symbols, model.task.length, 2000, stream(seed, "iid floor", "test")))
    return IidFloor(
        loss=evaluate(model, Sequences(*test)).token,
        floor=math.log(symbols),
        oracle=uniform_bag_floor(symbols, model.task.length - 1),
        steps=steps,
    )


def _train(
    model: LanguageModel, fresh: Iterator[tuple[Tensor, Tensor]], steps: int, lr: float, seed: int
) -> None:
    recipe = Recipe(lr=lr)
    optimiser = make_optimiser(recipe, model.parameters())
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "noise"))
        for _ in range(steps):
            tokens, lengths = next(fresh)
            optimiser.zero_grad()
            (-model.objective(tokens, lengths).sum() / (lengths - 1).sum()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip or math.inf)
            optimiser.step()


def _draws(symbols: int, length: int, rows: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    first = len(SPECIALS)
    while True:
        tokens = torch.randint(first, first + symbols, (rows, length), generator=generator)
        tokens[:, 0] = START
        yield tokens, torch.full((rows,), length)
