r"""Does a post-LN transformer need warm-up, and which weights let it learn? The tables of S2.

    a, b ~ N(0, 1), shape (batch, 10, 50)      input a ⊕ b      target t = (a + 1)² + b
    y = W_out · Encoder(W_in (a ⊕ b))          100 → 256, post-LN layers, 256 → 50
    loss = mean ½ (y − t)²                     new batches at every step, also for the test

The target of a position depends on this position only. Zero has the loss 5.5, the best constant
3.5, the best affine map 2 + 2a + b has 1, the target 0. A run that ends at 3.5 has learned only the
mean. The published script attends among the samples of a batch and tests with dropout on; the
columns have both axes, and dropout on and off. As in PyTorch, the layers start as copies of one.

Source: S2; Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745).

    python benchmarks/transformer_toy.py --only "2 layers" --steps 1000
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
import typer
from torch import Tensor, nn

from lmzoo.base.command_line import run_command
from lmzoo.base.seeds import derive_seed
from lmzoo.functional.parameters import redraw_parameter

LENGTH, NUMBERS = 10, 50


@dataclass(frozen=True)
class Setting:
    """A row of the tables; the defaults are those of the published script."""

    label: str
    published: str = "—"
    layers: int = 6
    init: str = "default"
    norm_first: bool = False
    lr: float = 1e-3
    warmup: int = 10
    """Steps: step i has the rate lr · min(1, i / warmup)."""
    batch: int = 16


SETTINGS = (
    Setting("lr 1e-3, no warm-up", "3.37", warmup=0),
    Setting("lr 1e-4, no warm-up", "0.56", warmup=0, lr=1e-4),
    Setting("lr 1e-5, no warm-up", "2.31", warmup=0, lr=1e-5),
    Setting("lr 1e-3, 1 % warm-up", "0.10"),
    Setting("2 layers, lr 1e-3, no warm-up", "0.086", layers=2, warmup=0),
    Setting("2 layers, lr 1e-4, no warm-up", "0.614", layers=2, warmup=0, lr=1e-4),
    Setting("default", "0.097"),
    Setting("xavier_uniform", "0.191", init="xavier_uniform"),
    Setting("xavier_normal", "0.189", init="xavier_normal"),
    Setting("normal 0.02", "0.66", init="normal_0.02"),
    Setting("normal 0.002", "2.95", init="normal_0.002"),
    Setting("normal 0.1", "3.50", init="normal_0.1"),
    Setting("uniform ±0.05", "3.50", init="uniform_0.05"),
    Setting("uniform ±0.01", "0.424", init="uniform_0.01"),
    Setting("uniform ±0.001", "3.44", init="uniform_0.001"),
    Setting("kaiming_uniform", "3.50", init="kaiming_uniform"),
    Setting("kaiming_normal", "3.50", init="kaiming_normal"),
    Setting("2 layers, kaiming_normal", "0.524", layers=2, init="kaiming_normal"),
    Setting("2 layers, kaiming_uniform", "0.531", layers=2, init="kaiming_uniform"),
    Setting("2 layers, xavier_uniform", "0.124", layers=2, init="xavier_uniform"),
    Setting("2 layers, default", "0.092", layers=2),
    Setting("2 layers, uniform ±0.01", "0.117", layers=2, init="uniform_0.01"),
    Setting("batch 64, lr 1e-3, no warm-up", "0.037", warmup=0, batch=64),
    Setting("pre-LN, lr 1e-3, no warm-up", norm_first=True, warmup=0),
)
"""In the order of S2. Its tables of initialisers do not state learning rate and warm-up; the
defaults of 1e-3 and 1 % agree with them."""


class Toy(nn.Module):
    """A linear layer, encoder layers of PyTorch with four heads, and a linear layer."""

    def __init__(self, setting: Setting, *, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            256, 4, 2048, 0.1, batch_first=batch_first, norm_first=setting.norm_first
        )
        self.into = nn.Linear(2 * NUMBERS, 256)
        self.encoder = nn.TransformerEncoder(layer, setting.layers, enable_nested_tensor=False)
        self.out = nn.Linear(256, NUMBERS)
        for name, _ in self.named_parameters() if setting.init != "default" else ():
            redraw_parameter(self, name, setting.init)

    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        """Return the mean of ½ (y − t)² on a new batch, which the published tables call MSE."""
        a, b = torch.randn(2, batch, LENGTH, NUMBERS, generator=generator)
        y = self.out(self.encoder(self.into(torch.cat([a, b], -1))))
        return 0.5 * nn.functional.mse_loss(y, (a + 1) ** 2 + b)


def run(
    setting: Setting, seed: int, steps: int, tests: int, *, batch_first: bool
) -> tuple[float, float]:
    """Train and return the test losses with dropout on, as published, and off."""
    torch.manual_seed(derive_seed(seed, "weights"))
    model = Toy(setting, batch_first=batch_first)
    optimiser = torch.optim.Adam(model.parameters(), lr=setting.lr, fused=True)
    data = torch.Generator().manual_seed(derive_seed(seed, "training data"))
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = setting.lr * min(1.0, step / max(setting.warmup, 1))
        optimiser.zero_grad()
        model.loss(setting.batch, data).backward()
        optimiser.step()
    losses = []
    with torch.no_grad():
        for dropout in (True, False):
            data = torch.Generator().manual_seed(derive_seed(seed, "test data"))
            model.train(dropout)
            total = sum(model.loss(setting.batch, data).item() for _ in range(tests))
            losses.append(total / tests)
    return losses[0], losses[1]


def main(
    seed: int = 0,
    steps: Annotated[int, typer.Option(min=1, help="Training batches.")] = 1000,
    tests: Annotated[int, typer.Option(min=1, help="Test batches.")] = 1000,
    only: Annotated[str, typer.Option(help="Settings whose label has this text.")] = "",
    layers: Annotated[int, typer.Option(help="Layers of all settings; 0: their own.")] = 0,
) -> None:
    """Train the settings and print them with the published losses."""
    torch.set_num_threads(1)
    heads = [
        f"{axis}, dropout {mode}" for axis in ("samples", "positions") for mode in ("on", "off")
    ]
    typer.echo(f"| setting | published | {' | '.join(heads)} |")
    typer.echo("| --- |" + " ---: |" * 5)
    for setting in SETTINGS:
        if only not in setting.label:
            continue
        setting = replace(setting, layers=layers or setting.layers)
        losses = [
            loss
            for batch_first in (False, True)
            for loss in run(setting, seed, steps, tests, batch_first=batch_first)
        ]
        cells = " | ".join(f"{loss:.3f}" for loss in losses)
        typer.echo(f"| {setting.label} | {setting.published} | {cells} |")


if __name__ == "__main__":
    run_command(main)
