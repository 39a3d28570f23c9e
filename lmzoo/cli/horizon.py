"""`lmzoo horizon`: the gradient horizons of rows or trained runs.

`lmzoo budget`: the most that a leak of the bag of tokens is worth on a corpus.
"""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.command_line import nest_settings, parse_settings
from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.cli.common import DataDir, ModelSettings, open_run, say_facts
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, corpus_config, open_corpus
from lmzoo.inspect.gradient_horizon import gradient_horizon, half_life
from lmzoo.inspect.leak_budget import leak_budget
from lmzoo.lab.cli.run_names import RUN_HELP, Runs, find_trained
from lmzoo.lab.cli.tables import AsJson, new_table
from lmzoo.lab.store.records import RUNS

SEQUENCES = 64
"""Number of sequences over which the gradient norms are means."""

DEFAULT_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn_lm": ("rnn_lm", {}),
    "lstm_lm": ("lstm_lm", {}),
    "f ≈ 0": ("lstm_lm", {"cell": {"forget_bias": -5.0}}),
    "f ≈ 1": ("lstm_lm", {"cell": {"forget_bias": 5.0}}),
    "f = 1": ("lstm_no_forget", {}),
    "gru": ("gru", {}),
    "DLM46": ("DLM46", {}),
}
"""Label -> row and model fields: the comparison of S4 with two more rows."""


def show_horizon(
    names: Annotated[list[str] | None, typer.Argument(help=f"{RUN_HELP}, or rows (their latest runs, or else their initial weights). Default: a comparison of RNN, LSTM and GRU before training.")] = None,
    corpus: Annotated[str, typer.Option(help="Corpus for a row that is not trained.")] = "captions",
    data_dir: DataDir = None,
    fields: ModelSettings = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the initial weights of a row.")] = 0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show how much the last token's loss depends on the state d steps earlier, relative to d = 1."""
    data = None
    trained = {} if fields else {name: find_trained(name, runs) for name in names or []}
    settings = nest_settings(parse_settings(fields or []), "model")
    rows, said = dict[str, tuple[LanguageModel, Corpus]](), set[str]()
    for name, folder in trained.items():
        if folder is not None:
            run = open_run(folder, data_dir, said)
            rows[name] = run.model, run.corpus
    built = {name: (name, settings) for name in names} if names else DEFAULT_ROWS
    untrained = [name for name in built if name not in rows]
    for name in untrained:
        if data is None:
            data = open_corpus(corpus_config(corpus), data_dir)
            say_facts(data, said)
        row, model_fields = built[name]
        rows[name] = zoo.build(zoo.config(row, **model_fields), data.task, seed), data
    models = {name: rows[name] for name in built}
    norms = {
        name: gradient_horizon(model, _equal_lengths(own)) for name, (model, own) in models.items()
    }
    if names and untrained:
        echo(f"initial weights, not trained: {', '.join(untrained)}", err=True)
    if as_json:
        echo(json.dumps({name: values.tolist() for name, values in norms.items()}))
        return
    _print(norms)


def _equal_lengths(corpus: Corpus) -> Tensor:
    lengths = corpus.test.lengths
    length = int(lengths.mode().values)
    if length < 3:
        raise UserError(
            f"{corpus.name}: sequences of {length} tokens have no horizon; use a corpus with at least 3"
        )
    return corpus.test.tokens[lengths == length][:SEQUENCES, :length]


def _print(norms: dict[str, Tensor]) -> None:
    table = new_table(right=("steps back", *norms))
    for d in range(max(map(len, norms.values()))):
        cells = [f"{float(g[d] / (g[0] or 1)):.3g}" if d < len(g) else "" for g in norms.values()]
        table.add_row(str(d + 1), *cells)
    half_lives = [half_life(values) for values in norms.values()]
    table.add_row("half at", *(str(d) if d else "never" for d in half_lives))
    console = Console()
    console.print(table)
    console.print("gradient of the last token's loss, relative to one step back", style="dim")


def show_budget(
    corpus: Annotated[str, typer.Argument(help="captions, multi30k_en, cath, text:PATH, ...")] = "captions",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show what an oracle that knows each sequence's bag of tokens gains on the test split."""
    data = open_corpus(corpus_config(corpus), data_dir)
    say_facts(data)
    budget = leak_budget(data.test, data.task.vocab)
    if as_json:
        echo(json.dumps({"corpus": data.name, **asdict(budget), "gain": budget.gain}))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{data.name}[/], test split, nats per token")
    console.print(f"  entropy of the token frequencies        {budget.unigram:.3f}")
    console.print(
        f"  loss of an oracle that knows the bag    {budget.floor:.3f}  "
        f"({budget.tokens_per_sequence:.1f} tokens per sequence)"
    )
    console.print(f"  maximal gain by a leak of the bag       {budget.gain:.3f}")
    if data.floor:
        console.print(f"  entropy floor of causal models          {data.floor.token:.3f}")
