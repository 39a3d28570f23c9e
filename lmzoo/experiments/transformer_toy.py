r"""A regression that shows the effect of learning rate, warm-up and initial weights.

    a, b ~ N(0, 1), shape (batch, 10, 50)      input a ⊕ b      target t = (a + 1)² + b
    y = W_out · Encoder(W_in (a ⊕ b))          100 → 256, post-LN layers, 256 → 50
    loss = mean ½ (y − t)²                     new batches at every step, also for the test

The target of a position depends on this position only. The losses of simple predictions are exact:
5.5 for zero, 3.5 for the best constant, 1 for the best affine map 2 + 2a + b, 0 for the target.
A run that ends at 3.5 has learned only the mean.

Two defects of the published script are options. With `batch_first=False`, attention is between the
samples of a batch instead of the positions. The published test keeps dropout on; the test here
returns both losses. As in PyTorch, the layers start as copies of one layer.

Source: S2; Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.functional.initialisers import initialiser, redraw_matrices
from lmzoo.functional.seeding import derive_seed
from lmzoo.store.records import Record

LENGTH, NUMBERS, EPOCHS = 10, 50, 10
TEST_CHUNK = 10
"""Test batches computed at once."""
ZERO_LOSS, CONSTANT_LOSS, AFFINE_LOSS = 5.5, 3.5, 1.0
"""Losses of zero outputs, the best constant and the best affine map."""


@config
class ToyModel:
    """Depth and shape of the encoder, and its initialiser."""

    layers: int = Field(6, ge=1)
    width: int = Field(256, ge=4, multiple_of=4)
    hidden: int = Field(2048, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    init: str = "default"
    norm_first: bool = False
    """Pre-LN instead of post-LN."""
    batch_first: bool = True
    """False is the published defect: attention between samples."""

    @field_validator("init")
    @classmethod
    def _require_known(cls, name: str) -> str:
        initialiser(name)
        return name


@config
class ToyRecipe:
    """Learning rate of Adam, batch size, and number of training and test batches."""

    lr: float = Field(1e-3, gt=0)
    warmup: int = Field(10, ge=0)
    """Steps of linear warm-up: step i has the rate lr · min(1, i / warmup)."""
    batch: int = Field(16, ge=1)
    steps: int = Field(1000, ge=EPOCHS, multiple_of=EPOCHS)
    tests: int = Field(1000, ge=1)
    """Test batches."""


class ToyTransformer(nn.Module):
    """A linear layer, encoder layers of PyTorch with four heads, and a linear layer."""

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


def draw_batch(
    batch: int, generator: torch.Generator
) -> tuple[Float[Tensor, "B T 100"], Float[Tensor, "B T 50"]]:
    """Draw a batch of inputs and targets."""
    a, b = torch.randn(2, batch, LENGTH, NUMBERS, generator=generator)
    return torch.cat([a, b], -1), (a + 1) ** 2 + b


def loss(y: Float[Tensor, "B T 50"], target: Float[Tensor, "B T 50"]) -> Float[Tensor, ""]:
    """Return the mean of ½ (y − t)², which the published table calls MSE."""
    return 0.5 * nn.functional.mse_loss(y, target)


@dataclass(frozen=True)
class DropoutLosses:
    """Test losses with dropout off and on; the published losses have it on."""

    dropout_off: float
    dropout_on: float


class ToyTraining:
    """One training; its weights, data and dropout are functions of the seed."""

    def __init__(self, model: ToyModel, recipe: ToyRecipe, seed: int) -> None:
        self.recipe, self.seed = recipe, seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            self.model = ToyTransformer(model)

    def fit(self) -> Iterator[Record]:
        """Train and yield an epoch record after each tenth of the steps."""
        recipe = self.recipe
        optimiser = torch.optim.Adam(self.model.parameters(), lr=recipe.lr, fused=True)
        data = torch.Generator().manual_seed(derive_seed(self.seed, "training data"))
        for epoch in range(1, EPOCHS + 1):
            start, total = time.perf_counter(), 0.0
            steps = range((epoch - 1) * recipe.steps // EPOCHS, epoch * recipe.steps // EPOCHS)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive_seed(self.seed, "dropout", epoch))
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
        x, target = draw_batch(recipe.batch, data)
        value = loss(self.model.train()(x), target)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        return value.item()

    @torch.no_grad()
    def test(self) -> DropoutLosses:
        """Compute both losses on the same new batches."""
        data = torch.Generator().manual_seed(derive_seed(self.seed, "test data"))
        total = {False: 0.0, True: 0.0}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.seed, "test dropout"))
            for done in range(0, self.recipe.tests, TEST_CHUNK):
                count = min(TEST_CHUNK, self.recipe.tests - done)
                x, target = self._draw_batches(count, data)
                for training in total:
                    total[training] += loss(self.model.train(training)(x), target).item() * count
        return DropoutLosses(total[False] / self.recipe.tests, total[True] / self.recipe.tests)

    def _draw_batches(self, count: int, data: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw several batches and concatenate them along the axis without attention."""
        axis = 0 if self.model.batch_first else 1
        parts = [draw_batch(self.recipe.batch, data) for _ in range(count)]
        x, target = (torch.cat(side, axis) for side in zip(*parts, strict=True))
        return x, target
