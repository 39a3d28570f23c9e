r"""A regression on which a transformer's learning rate, warm-up and initial weights show.

    a, b ~ N(0, 1), shape (batch, 10, 50)      input a ⊕ b      target t = (a + 1)² + b
    y = W_out · Encoder(W_in (a ⊕ b))          100 → 256, post-LN layers, 256 → 50
    loss = mean ½ (y − t)²                     fresh batches throughout, also for the test

No position needs another, and the anchors are exact: silence costs 5.5, the best
constant 3.5, the best affine map 2 + 2a + b costs 1, perfection 0.
A run that ends at 3.5 has learned only the mean.

Two defects of the published script are options. `batch_first=False` hands the batch to the
attention as if it were the sequence, so samples mix. Its test left dropout on: a
test here gives both numbers. As in the library, default layers begin as copies of one.

S2; Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745); zoo.md 4.2.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn

from lmzoo.catalogue import technique
from lmzoo.config import config
from lmzoo.contract import stream
from lmzoo.functional.initialisers import initialiser, redraw_matrices
from lmzoo.store.records import Record

technique(
    "transformer_toy_diagnostic", family="diagnostic", document="S2", source="S2",
    summary="A regression that shows what learning rate, warm-up and initial weights do.",
)  # fmt: skip

LENGTH, NUMBERS, EPOCHS = 10, 50, 10
TOGETHER = 10
"""Test batches computed at once."""
SILENCE, CONSTANT, AFFINE = 5.5, 3.5, 1.0
"""What an output of zeros, the best constant and the best affine map cost."""


@config
class ToyModel:
    """The encoder's depth and shape, and how its matrices are drawn."""

    layers: int = Field(6, ge=1)
    width: int = Field(256, ge=4, multiple_of=4)
    hidden: int = Field(2048, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    init: str = "default"
    norm_first: bool = False
    """Pre-LN instead of post-LN."""
    batch_first: bool = True
    """False is the published defect: attention among samples."""

    @field_validator("init")
    @classmethod
    def _known(cls, name: str) -> str:
        initialiser(name)
        return name


@config
class ToyRecipe:
    """Adam's rate, and how many fresh batches train and test."""

    lr: float = Field(1e-3, gt=0)
    warmup: int = Field(10, ge=0)
    """Steps over which the rate rises linearly: step i takes lr · min(1, i / warmup)."""
    batch: int = Field(16, ge=1)
    steps: int = Field(1000, ge=EPOCHS, multiple_of=EPOCHS)
    tests: int = Field(1000, ge=1)
    """Test batches."""


class ToyTransformer(nn.Module):
    """Linear, encoder layers of the library with four heads, linear."""

    def __init__(self, config: ToyModel) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            config.width, 4, config.hidden, config.dropout,
            batch_first=config.batch_first, norm_first=config.norm_first,
        )  # fmt: skip
        self.batch_first = config.batch_first
        self.into = nn.Linear(2 * NUMBERS, config.width)
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.out = nn.Linear(config.width, NUMBERS)
        redraw_matrices(self, config.init)

    def forward(self, x: Float[Tensor, "B T 100"]) -> Float[Tensor, "B T 50"]:
        return self.out(self.encoder(self.into(x)))


def fresh(
    batch: int, generator: torch.Generator
) -> tuple[Float[Tensor, "B T 100"], Float[Tensor, "B T 50"]]:
    """A batch of inputs and targets."""
    a, b = torch.randn(2, batch, LENGTH, NUMBERS, generator=generator)
    return torch.cat([a, b], -1), (a + 1) ** 2 + b


def loss(y: Float[Tensor, "B T 50"], target: Float[Tensor, "B T 50"]) -> Float[Tensor, ""]:
    """Mean ½ (y − t)²; the published table calls it MSE."""
    return 0.5 * nn.functional.mse_loss(y, target)


@dataclass(frozen=True)
class Tested:
    """The test loss with dropout off, and with dropout on as published."""

    evaluating: float
    training: float


class Toy:
    """One training: its weights, its data and its dropout are functions of the seed."""

    def __init__(self, model: ToyModel, recipe: ToyRecipe, seed: int) -> None:
        self.recipe, self.seed = recipe, seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(seed, "weights"))
            self.model = ToyTransformer(model)

    def fit(self) -> Iterator[Record]:
        """Train, yielding a record at each tenth of the steps."""
        recipe = self.recipe
        optimiser = torch.optim.Adam(self.model.parameters(), lr=recipe.lr, fused=True)
        data = torch.Generator().manual_seed(stream(self.seed, "training data"))
        for epoch in range(1, EPOCHS + 1):
            start, total = time.perf_counter(), 0.0
            steps = range((epoch - 1) * recipe.steps // EPOCHS, epoch * recipe.steps // EPOCHS)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(stream(self.seed, "dropout", epoch))
                for step in steps:
                    total += self._step(optimiser, data, step + 1)
            seconds = time.perf_counter() - start
            yield {
                "event": "epoch",
                "epoch": epoch,
                "train_loss": total / len(steps),
                "seconds": round(seconds, 4),
            }

    def _step(self, optimiser: torch.optim.Optimizer, data: torch.Generator, step: int) -> float:
        recipe = self.recipe
        if recipe.warmup:
            for group in optimiser.param_groups:
                group["lr"] = recipe.lr * min(1.0, step / recipe.warmup)
        x, target = fresh(recipe.batch, data)
        value = loss(self.model.train()(x), target)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        return value.item()

    @torch.no_grad()
    def test(self) -> Tested:
        """Both losses on the same fresh batches."""
        data = torch.Generator().manual_seed(stream(self.seed, "test data"))
        total = {False: 0.0, True: 0.0}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(self.seed, "test dropout"))
            for done in range(0, self.recipe.tests, TOGETHER):
                count = min(TOGETHER, self.recipe.tests - done)
                x, target = self._side_by_side(count, data)
                for training in total:
                    total[training] += loss(self.model.train(training)(x), target).item() * count
        return Tested(total[False] / self.recipe.tests, total[True] / self.recipe.tests)

    def _side_by_side(self, count: int, data: torch.Generator) -> tuple[Tensor, Tensor]:
        """Several batches as one, along the axis over which nothing attends."""
        axis = 0 if self.model.batch_first else 1
        parts = [fresh(self.recipe.batch, data) for _ in range(count)]
        x, target = (torch.cat(side, axis) for side in zip(*parts, strict=True))
        return x, target
