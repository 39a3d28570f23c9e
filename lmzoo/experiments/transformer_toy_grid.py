"""Does a post-LN transformer need warm-up, and which initial weights let it learn?

The regression of `lmzoo.experiments.transformer_toy` for every learning rate, warm-up,
initialiser, depth and batch size published in S2, with attention between the samples of a batch, as
in the published script, and between positions. Each run is tested with dropout on, as published,
and off.

`main` trains the missing runs of its store one after another and prints the table. Several
processes can share a store: a run is locked while it is trained.
"""

import fcntl
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from lmzoo.config import from_dict, to_dict
from lmzoo.experiments.transformer_toy import EPOCHS, ToyModel, ToyRecipe, ToyTraining
from lmzoo.store.records import NUMERICS, SCHEMA, Record, RunFolder, find_end, run_identity

TWO_LAYERS = {"layers": 2}
NO_WARMUP = {"warmup": 0}


@dataclass(frozen=True)
class Setting:
    """A row of the tables of S2. Fields that are not given have their default values."""

    label: str
    published: str = ""
    """The loss in S2, as text."""
    model: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


SETTINGS = (
    Setting("lr 1e-3, no warm-up", "3.37", {}, NO_WARMUP),
    Setting("lr 1e-4, no warm-up", "0.56", {}, {**NO_WARMUP, "lr": 1e-4}),
    Setting("lr 1e-5, no warm-up", "2.31", {}, {**NO_WARMUP, "lr": 1e-5}),
    Setting("lr 1e-3, 1 % warm-up", "0.10"),
    Setting("2 layers, lr 1e-3, no warm-up", "0.086", TWO_LAYERS, NO_WARMUP),
    Setting("2 layers, lr 1e-4, no warm-up", "0.614", TWO_LAYERS, {**NO_WARMUP, "lr": 1e-4}),
    Setting("default", "0.097"),
    Setting("xavier_uniform", "0.191", {"init": "xavier_uniform"}),
    Setting("xavier_normal", "0.189", {"init": "xavier_normal"}),
    Setting("normal 0.02", "0.66", {"init": "normal_0.02"}),
    Setting("normal 0.002", "2.95", {"init": "normal_0.002"}),
    Setting("normal 0.1", "3.50", {"init": "normal_0.1"}),
    Setting("uniform ±0.05", "3.50", {"init": "uniform_0.05"}),
    Setting("uniform ±0.01", "0.424", {"init": "uniform_0.01"}),
    Setting("uniform ±0.001", "3.44", {"init": "uniform_0.001"}),
    Setting("kaiming_uniform", "3.50", {"init": "kaiming_uniform"}),
    Setting("kaiming_normal", "3.50", {"init": "kaiming_normal"}),
    Setting("2 layers, kaiming_normal", "0.524", {**TWO_LAYERS, "init": "kaiming_normal"}),
    Setting("2 layers, kaiming_uniform", "0.531", {**TWO_LAYERS, "init": "kaiming_uniform"}),
    Setting("2 layers, xavier_uniform", "0.124", {**TWO_LAYERS, "init": "xavier_uniform"}),
    Setting("2 layers, default", "0.092", TWO_LAYERS),
    Setting("2 layers, uniform ±0.01", "0.117", {**TWO_LAYERS, "init": "uniform_0.01"}),
    Setting("batch 64, lr 1e-3, no warm-up", "0.037", {}, {**NO_WARMUP, "batch": 64}),
    Setting("pre-LN, lr 1e-3, no warm-up", "", {"norm_first": True}, NO_WARMUP),
)
"""In the order of S2. Its tables of initialisers do not state learning rate and warm-up; the
defaults of 1e-3 and 1 % agree with them."""


def toy_run_config(
    setting: Setting, seed: int, *, batch_first: bool, **sizes: int
) -> dict[str, Any]:
    """Return the config of a run with its identity; `sizes` are recipe fields such as `steps`."""
    model = from_dict(ToyModel, {**setting.model, "batch_first": batch_first})
    config = {
        "schema": SCHEMA,
        "numerics": NUMERICS,
        "model": {"name": "transformer_toy_diagnostic", **to_dict(model)},
        "recipe": to_dict(from_dict(ToyRecipe, {**setting.recipe, **sizes})),
        "corpus": {"name": "squares"},
        "fingerprint": "",
        "vocab": 0,
        "length": 0,
        "seed": seed,
        "score": "regression",
    }
    return {"run": run_identity(config), **config}


def train_run(folder: RunFolder, config: dict[str, Any]) -> Record | None:
    """Train and test a run unless it is finished.

    Returns:
        The test record, or None if another process trains the run.
    """
    folder.create(config)
    with (folder.path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if find_end(folder.records(), EPOCHS) is None:
            _train(folder, config)
    return find_test(folder)


def _train(folder: RunFolder, config: dict[str, Any]) -> None:
    fields = {key: value for key, value in config["model"].items() if key != "name"}
    recipe = from_dict(ToyRecipe, config["recipe"])
    training = ToyTraining(from_dict(ToyModel, fields), recipe, config["seed"])
    for record in training.fit():
        folder.append(record)
    losses = training.test()
    folder.append(
        {
            "event": "test",
            "epoch": EPOCHS,
            "dropout_off": losses.dropout_off,
            "dropout_on": losses.dropout_on,
        }
    )
    folder.append({"event": "end", "epoch": EPOCHS, "status": "finished", "reason": ""})


def find_test(folder: RunFolder) -> Record | None:
    """Return the test record of a run, or None if there is none."""
    return next((r for r in folder.records() if r["event"] == "test"), None)


def format_table(store: Path, seeds: int, **sizes: int) -> Iterator[str]:
    """Yield the lines of a Markdown table of all settings with their published losses."""
    modes = ("dropout_on", "dropout_off")
    heads = [f"{axis}, {m.replace('_', ' ')}" for axis in ("samples", "positions") for m in modes]
    yield " | ".join(["| setting", "published", *heads]) + " |"
    yield "| --- |" + " ---: |" * (1 + len(heads))
    for setting in SETTINGS:
        cells = [setting.label, setting.published or "—"]
        for batch_first in (False, True):
            configs = [
                toy_run_config(setting, s, batch_first=batch_first, **sizes) for s in range(seeds)
            ]
            tests = [find_test(RunFolder(store / config["run"])) for config in configs]
            cells += [_cell([r[mode] for r in tests if r is not None]) for mode in modes]
        yield "| " + " | ".join(cells) + " |"


def _cell(losses: list[float | None]) -> str:
    if not losses:
        return "not run"
    finite = [loss for loss in losses if loss is not None]
    if len(finite) < len(losses):
        return "diverged"
    spread = f" ({min(finite):.3f}–{max(finite):.3f})" if len(finite) > 1 else ""
    return f"{mean(finite):.3f}{spread}"


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of each setting.")] = 1,
    steps: Annotated[int, typer.Option(min=EPOCHS, help="Training batches.")] = 1000,
    tests: Annotated[int, typer.Option(min=1, help="Test batches.")] = 1000,
    storage: Annotated[Path, typer.Option(help="Folder of the run stores.")] = Path("runs"),
    only: Annotated[str, typer.Option(help="Train settings whose label has this text.")] = "",
    table_only: Annotated[bool, typer.Option("--table", help="Do not train.")] = False,  # noqa: FBT002
) -> None:
    """Train the missing runs and print a table of all settings with the published losses."""
    store, console = storage / "transformer_toy-squares", Console(stderr=True, highlight=False)
    torch.set_num_threads(1)
    sizes = {"steps": steps, "tests": tests}
    runs = [
        (setting, batch_first, seed)
        for seed in range(seeds)
        for batch_first in (False, True)
        for setting in SETTINGS
        if only in setting.label and not table_only
    ]
    for i, (setting, batch_first, seed) in enumerate(runs, 1):
        config = toy_run_config(setting, seed, batch_first=batch_first, **sizes)
        with console.status(f"{i} of {len(runs)}: {setting.label}"):
            record = train_run(RunFolder(store / config["run"]), config)
        axis = "positions" if batch_first else "samples"
        loss = "another process trains it" if record is None else _cell([record["dropout_off"]])
        console.print(f"{i} of {len(runs)}: {setting.label}, attention between {axis}: {loss}")
    sys.stdout.write("\n".join(format_table(store, seeds, **sizes)) + "\n")
