"""`train`: one run, on disk, resumable, with its curve live."""

import contextlib
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from lmzoo import zoo
from lmzoo.command_line import nested, read_settings
from lmzoo.config import from_dict, to_dict
from lmzoo.contract import LanguageModel, Score
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import CORPORA, Corpus, Sequences
from lmzoo.data.open import open_corpus, read_spec
from lmzoo.device import best_device
from lmzoo.inspect.history import EVENT, facts
from lmzoo.inspect.summary import equal_length_sequences, require_watchable, summarise_activity
from lmzoo.store.records import Record, RunFolder, epoch_records, find_end
from lmzoo.train.evaluate import Losses
from lmzoo.train.recipe import Recipe, named_recipe
from lmzoo.train.run import Run, run_config

REPORTED = 200
"""Validation sequences of a model's report; all words at all positions may be in memory."""


def train(
    name: Annotated[str, typer.Argument(help="A row's name or seed id: DLM46.")],
    corpus: Annotated[str, typer.Option(help="captions, multi30k_en, cath, text:PATH, ...")] = "captions",
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs in all.")] = 12,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    recipe: Annotated[str, typer.Option(help="default or published.")] = "default",
    fields: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE: model.width=64")] = None,
    mutations: Annotated[str | None, typer.Option(help="The seed's numbers: 0,2,4,5 (DLM46, DLM47).")] = None,
    gates: Annotated[bool, typer.Option("--gates", help="Look at gates, states and attention after each epoch; `gates RUN` shows the curve.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of single runs.")] = Path("runs/single"),
) -> None:  # fmt: skip
    """Train one model; the same command goes on where it was cut off."""
    settings = read_settings(fields or [])
    chosen = nested(settings, "model")
    if mutations is not None:
        chosen.setdefault("cell", {})["mutations"] = mutations
    model = zoo.config(name, **chosen)
    how = from_dict(Recipe, {**to_dict(named_recipe(recipe)), **nested(settings, "recipe")})
    spec = CORPORA.write(CORPORA.read({**read_spec(corpus), **nested(settings, "corpus")}))
    data = open_corpus(spec, data_dir)
    if gates:
        require_watchable(zoo.build(model, data.task), zoo.row(name).name)
    config = run_config(model, how, data, spec, seed)
    folder = RunFolder(out / config["run"])
    labels = {"row": zoo.row(name).name, "stage": "single"}
    run = Run(folder, {**config, **labels}, data, device=best_device())
    console = Console()
    console.print(
        f"[bold]{zoo.row(name).name}[/] on {data.name}: {config['parameters']:,} parameters, "
        f"{len(data.train):,} sequences, V={len(data.vocabulary)}  ({folder.path})",
        highlight=False,
    )
    with contextlib.closing(run):
        _watch(run, epochs, console, data, gates=gates)
        _close(run, epochs, console, data)


def _watch(run: Run, budget: int, console: Console, corpus: Corpus, *, gates: bool) -> None:
    records = epoch_records(run.folder.records())
    some = equal_length_sequences(corpus) if gates else None
    _look(run, some)
    with Live(console=console, auto_refresh=False, transient=not console.is_terminal) as live:
        for record in run.train(budget):
            _look(run, some)
            records.append(record)
            live.update(_curve(records[-12:], budget, corpus), refresh=True)


def _look(run: Run, some: Sequences | None) -> None:
    """Write down what is seen at this epoch, be it one that a run before this left unseen."""
    if some is not None and not run.training.diverged and not run.told(EVENT):
        run.tell(
            EVENT, facts(summarise_activity(run.training.model, some, run.training.model.name))
        )


def _curve(records: list[Record], budget: int, corpus: Corpus) -> Table:
    floor = f"; floor {corpus.floor.token:.4f}" if corpus.floor else ""
    table = Table(
        title=f"nats per token{floor}", box=None, title_justify="left", header_style="dim"
    )
    for column in ("epoch", "train", "valid", "valid (sentence)", "tokens/s"):
        table.add_column(column, justify="right")
    for r in records:
        losses = (r["train_token"], r["valid_token"], r["valid_sentence"])
        shown = ["diverged" if x is None else f"{x:.4f}" for x in losses]
        table.add_row(f"{r['epoch']}/{budget}", *shown, f"{r['tokens_per_second']:,}")
    return table


def _close(run: Run, budget: int, console: Console, corpus: Corpus) -> None:
    if run.training.diverged:
        run.end("diverged", f"the loss was not finite at epoch {run.epoch}")
        console.print(f"diverged at epoch {run.epoch}; lower recipe.lr or set recipe.clip")
    else:
        losses = run.test()
        if find_end(run.folder.records(), budget) is None:
            run.end("finished")
        console.print(
            f"test {losses.token:.4f} nats per token ({meaning(run.training.model, losses)}), "
            f"sentence mean {losses.sentence:.4f}, best validation epoch {run.training.best_epoch}",
            highlight=False,
        )
        told = report(run, corpus)
        if told:
            facts = ", ".join(f"{name} {value:.4f}" for name, value in told.items())
            console.print(f"on validation sequences: {facts}", highlight=False)


def meaning(model: LanguageModel, losses: Losses) -> str:
    """What the number is: a perplexity only where it is a density's."""
    if model.leaks:
        return "no perplexity: it sees the future"
    return {
        Score.EXACT: f"perplexity {losses.perplexity:.2f}",
        Score.CONDITIONAL: f"perplexity given the source {losses.perplexity:.2f}",
        Score.LOWER_BOUND: f"a bound: perplexity at most {losses.perplexity:.2f}",
        Score.RECONSTRUCTION: "a reconstruction, as the words were also an input: no perplexity",
        Score.OBJECTIVE: "the training objective: no perplexity",
    }[model.score]


@torch.no_grad()
def report(run: Run, corpus: Corpus) -> dict[str, float]:
    """What the model of the best epoch has to say beside its score, of some validation sequences."""
    model = run.training.model
    model.load_state_dict(run.training.best_weights)
    some = gather_batch(
        corpus.valid, torch.arange(min(REPORTED, len(corpus.valid))), trim=not model.leaks
    )
    return model.eval().report(some.tokens, some.lengths, *some.given)
