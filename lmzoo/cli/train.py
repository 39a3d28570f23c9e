"""`lmzoo train`: one resumable run on disk, with its losses by epoch."""

import contextlib
import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lmzoo import zoo
from lmzoo.base.command_line import MOST, MOST_SEED, nest_settings, parse_settings
from lmzoo.base.memory import allocating
from lmzoo.base.streams import echo, said
from lmzoo.cli.common import DataDir, describe_cuts
from lmzoo.contract import LanguageModel, Score
from lmzoo.data.corpus import Corpus, corpus_config, describe_data, open_corpus
from lmzoo.kernels.device import best_device, check_precision
from lmzoo.lab.cli.tables import AsJson
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.records import RunFolder, find_end
from lmzoo.lab.store.user_code import save
from lmzoo.train.evaluate import Losses
from lmzoo.train.recipe import named_recipe
from lmzoo.train.run import Run, parts_code, run_config


def train(
    name: Annotated[str, typer.Argument(help="A row, or an id such as DLM46.")],
    corpus: Annotated[str, typer.Option(help="captions, multi30k_en, cath, text:PATH, ...")] = "captions",
    data_dir: DataDir = None,
    epochs: Annotated[int, typer.Option(min=1, max=MOST, help="Total number of epochs.")] = 12,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of weights, batches and noise.")] = 0,
    recipe: Annotated[str, typer.Option(help="default, published (that of S0) or muon_wsd.")] = "default",
    fields: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of model, recipe or corpus, such as model.width=64; repeatable. On a GPU recipe.precision=tf32x3 (default), tf32 or bf16 says how it multiplies.")] = None,
    cuts: Annotated[str | None, typer.Option(help="Cuts of the cell by number or name, such as 4 or state_to_candidate; `lmzoo describe ROW` lists them.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/single"),
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """Train one model. Repeat the command to continue an interrupted run.

    With --json, lines go to stderr, and stdout has the config of the run and its records.
    """
    settings = parse_settings(fields or [])
    model_fields = nest_settings(settings, "model")
    if cuts is not None:
        # --cuts is short for --set model.cell.cuts.
        model_fields.setdefault("cell", {})["cuts"] = cuts
    model = zoo.config(name, **model_fields)
    recipe_fields = nest_settings(settings, "recipe")
    how = named_recipe(recipe).with_fields(recipe_fields).with_budget(epochs)
    spec = corpus_config(corpus, nest_settings(settings, "corpus"))
    data = open_corpus(spec, data_dir)
    # Before the run has a folder.
    check_precision(how.precision, best_device())
    config = run_config(model, how, data, spec, seed)
    folder = RunFolder(out / config["run"])
    # So that `lmzoo sample` and others can import the parts of the user.
    save(parts_code(model, spec), open_store(out))
    labels = {"row": zoo.row(name).name, "stage": "single"}
    run = Run(folder, config | labels, data, device=best_device())
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    heading = f"[bold]{zoo.row(name).name}[/]"
    cuts = describe_cuts(getattr(model, "cell", None))
    if cuts:
        heading += f", {cuts},"
    console.print(
        f"{heading} on {data.name}: {config['parameters']:,} parameters, {len(data.train):,} sequences, "
        f"V={len(data.vocabulary)}  ({folder.path})"
    )
    for line in describe_data(data):
        console.print(line, markup=False, soft_wrap=True)
    if run.note:
        console.print(run.note, markup=False, soft_wrap=True)
    with contextlib.closing(run), allocating(f"training {zoo.row(name).name}"):
        _train(run, epochs, console, data)
        code = _finish(run, epochs, console, data)
    if as_json:
        own = {"folder": str(folder.path), "records": list(folder.records())}
        echo(json.dumps(config | labels | own, indent=1))
    return code


def _train(run: Run, budget: int, console: Console, corpus: Corpus):
    """Train, and print the losses of each epoch in nats per token."""
    if corpus.floor:
        console.print(f"entropy floor {corpus.floor.token:.4f} nats per token")

    def state() -> str:
        return f" {run.training.trained:.3f} of {budget} epochs"

    # On a long text, an epoch takes hours.
    with said("training", state):
        for record in run.train(budget):
            words = [
                f"{name} {record[name]:.4f}"
                for name in ("train_token", "valid_token", "valid_accuracy")
                if record.get(name) is not None
            ]
            words.append(f"{record['tokens_per_second']:,} tokens/s")
            console.print(f"epoch {record['epoch']}/{budget}:", ", ".join(words))


def _finish(run: Run, budget: int, console: Console, corpus: Corpus) -> int:
    """Test the run, append its end event, and print the results; return the exit code."""
    if run.training.diverged:
        run.end("diverged", f"the loss was not finite at epoch {run.epoch}")
        # The usual cause.
        advice = "lower recipe.lr or set recipe.clip"
        if run.training.model.closed_form:
            advice = (
                "a token of the validation split has probability 0; choose a smoothing that knows "
                "unseen tokens, such as model.smoothing=kneser_ney"
            )
        console.print(f"diverged at epoch {run.epoch}; {advice}")
        return 1
    losses = run.test()
    # A run that had ended is only shown again.
    if find_end(run.folder.records(), budget) is None:
        run.end("finished")
    console.print(
        f"test {losses.token:.4f} nats per token ({describe_score(run.training.model, losses)}), "
        f"sentence mean {losses.sentence:.4f}, best validation epoch {run.training.best_epoch}"
    )
    if losses.accuracies:
        text = (
            f"{losses.accuracy:.2%} of scored tokens and {losses.sequence_accuracy:.2%} of "
            "sequences right"
        )
        if corpus.ceiling is not None:
            text += f"; no model exceeds {corpus.ceiling:.2%}"
        console.print(text)
    size = corpus.test_size
    if size and run.training.model.score is not Score.OBJECTIVE:
        # Per character, texts with other tokens can be compared.
        bits = losses.token * losses.tokens / math.log(2)
        text = f"{bits / size.characters:.4f} bits per character, {bits / size.bytes:.4f} per byte"
        text += _perplexity_per_word(run.training.model, losses, size.words)
        unknown = corpus.test.unknown_share
        if unknown:
            text += f" of known words ({unknown:.2%} of the tokens are <unk>)"
        console.print(text)
    if losses.report:
        text = ", ".join(f"{name} {value:.4f}" for name, value in losses.report.items())
        console.print(f"on validation sequences: {text}")
    return 0


def _perplexity_per_word(model: LanguageModel, losses: Losses, words: int | None) -> str:
    if model.score is not Score.EXACT or model.leaks or not words:
        return ""
    nats = losses.token * losses.tokens / words
    if nats >= 700:  # its exponential is no number
        return ""
    return f", perplexity per word {math.exp(nats):,.6g}"


def describe_score(model: LanguageModel, losses: Losses) -> str:
    """Return what the test loss is: a perplexity only if the model is a density."""
    if model.leaks:
        return "no perplexity: the model reads later tokens"
    texts = {
        Score.EXACT: f"perplexity {losses.perplexity:.2f}",
        Score.CONDITIONAL: f"perplexity given the source {losses.perplexity:.2f}",
        Score.LOWER_BOUND: f"a bound: perplexity at most {losses.perplexity:.2f}",
        Score.RECONSTRUCTION: "a reconstruction of the input: no perplexity",
        Score.OBJECTIVE: "the training objective: no perplexity",
    }
    return texts[model.score]
