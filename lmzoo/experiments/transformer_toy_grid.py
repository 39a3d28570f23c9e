"""Does a post-LN transformer need warm-up, and which initial weights let it learn?

S2's regression (`lmzoo/experiments/transformer_toy.py`) under every learning rate, warm-up,
initialiser, depth and batch size that S2 published, with attention among the samples of
a batch, as its script has it, and among positions, as it should be; each tested with
dropout on, as published, and off. zoo.md 4.2.

It scores no tokens, so it is no study of the engine: this script trains what is missing
in its store, one run after the other, and prints the table. Start it twice to use two
cores: each run is held by one process.
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
from lmzoo.experiments.transformer_toy import EPOCHS, Toy, ToyModel, ToyRecipe
from lmzoo.store.records import SCHEMA, RunFolder, find_end, run_identity

TWO = {"layers": 2}
COLD = {"warmup": 0}


@dataclass(frozen=True)
class Setting:
    """A row of S2's tables; what it leaves out is the default, warm-up over ten steps."""

    label: str
    published: str = ""
    model: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


SETTINGS = (
    Setting("lr 1e-3, no warm-up", "3.37", {}, COLD),
    Setting("lr 1e-4, no warm-up", "0.56", {}, {**COLD, "lr": 1e-4}),
    Setting("lr 1e-5, no warm-up", "2.31", {}, {**COLD, "lr": 1e-5}),
    Setting("lr 1e-3, 1 % warm-up", "0.10"),
    Setting("2 layers, lr 1e-3, no warm-up", "0.086", TWO, COLD),
    Setting("2 layers, lr 1e-4, no warm-up", "0.614", TWO, {**COLD, "lr": 1e-4}),
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
    Setting("2 layers, kaiming_normal", "0.524", {**TWO, "init": "kaiming_normal"}),
    Setting("2 layers, kaiming_uniform", "0.531", {**TWO, "init": "kaiming_uniform"}),
    Setting("2 layers, xavier_uniform", "0.124", {**TWO, "init": "xavier_uniform"}),
    Setting("2 layers, default", "0.092", TWO),
    Setting("2 layers, uniform ±0.01", "0.117", {**TWO, "init": "uniform_0.01"}),
    Setting("batch 64, lr 1e-3, no warm-up", "0.037", {}, {**COLD, "batch": 64}),
    Setting("pre-LN, lr 1e-3, no warm-up", "", {"norm_first": True}, COLD),
)
"""In S2's order; the tables of initialisers leave lr and warm-up unsaid: 1e-3 and 1 % agree."""

Result = dict[str, Any]


def describe(setting: Setting, seed: int, *, batch_first: bool, **sizes: int) -> dict[str, Any]:
    """The config of one run, its identity included."""
    model = from_dict(ToyModel, {**setting.model, "batch_first": batch_first})
    config = {
        "schema": SCHEMA,
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


def train(folder: RunFolder, config: dict[str, Any]) -> Result | None:
    """The run's test, made now if there is none yet; None if another process is at it."""
    folder.create(config)
    with (folder.path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if find_end(folder.records(), EPOCHS) is None:
            _train(folder, config)
    return result(folder)


def _train(folder: RunFolder, config: dict[str, Any]) -> None:
    fields = {key: value for key, value in config["model"].items() if key != "name"}
    recipe = from_dict(ToyRecipe, config["recipe"])
    toy = Toy(from_dict(ToyModel, fields), recipe, config["seed"])
    for record in toy.fit():
        folder.append(record)
    tested = toy.test()
    folder.append(
        {
            "event": "test",
            "epoch": EPOCHS,
            "dropout_off": tested.evaluating,
            "dropout_on": tested.training,
        }
    )
    folder.append({"event": "end", "epoch": EPOCHS, "status": "finished", "reason": ""})


def result(folder: RunFolder) -> Result | None:
    """The run's test, or None if it has none yet."""
    return next((r for r in folder.records() if r["event"] == "test"), None)


def table(store: Path, seeds: int, **sizes: int) -> Iterator[str]:
    """The settings beside the published numbers, as lines of Markdown."""
    modes = ("dropout_on", "dropout_off")
    heads = [f"{who}, {m.replace('_', ' ')}" for who in ("samples", "positions") for m in modes]
    yield " | ".join(["| setting", "published", *heads]) + " |"
    yield "| --- |" + " ---: |" * (1 + len(heads))
    for setting in SETTINGS:
        cells = [setting.label, setting.published or "—"]
        for batch_first in (False, True):
            configs = [describe(setting, s, batch_first=batch_first, **sizes) for s in range(seeds)]
            found = [result(RunFolder(store / config["run"])) for config in configs]
            cells += [_cell([r[mode] for r in found if r is not None]) for mode in modes]
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
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each setting.")] = 1,
    steps: Annotated[int, typer.Option(min=EPOCHS, help="Training batches.")] = 1000,
    tests: Annotated[int, typer.Option(min=1, help="Test batches.")] = 1000,
    storage: Annotated[Path, typer.Option(help="Folder of the run stores.")] = Path("runs"),
    only: Annotated[str, typer.Option(help="Settings whose label holds this text.")] = "",
    table_only: Annotated[bool, typer.Option("--table", help="Train nothing, print.")] = False,  # noqa: FBT002
) -> None:
    """Train what is missing, print all settings beside the published numbers."""
    store, say = storage / "transformer_toy-squares", Console(stderr=True, highlight=False)
    torch.set_num_threads(1)
    sizes = {"steps": steps, "tests": tests}
    wanted = [
        (setting, batch_first, seed)
        for seed in range(seeds)
        for batch_first in (False, True)
        for setting in SETTINGS
        if only in setting.label and not table_only
    ]
    for i, (setting, batch_first, seed) in enumerate(wanted, 1):
        config = describe(setting, seed, batch_first=batch_first, **sizes)
        with say.status(f"{i} of {len(wanted)}: {setting.label}"):
            found = train(RunFolder(store / config["run"]), config)
        where = "positions" if batch_first else "samples"
        told = "another process has it" if found is None else _cell([found["dropout_off"]])
        say.print(f"{i} of {len(wanted)}: {setting.label}, attending to {where}: {told}")
    sys.stdout.write("\n".join(table(store, seeds, **sizes)) + "\n")
