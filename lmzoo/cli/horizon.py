"""`horizon`: how far back rows, or trained runs, get a gradient from."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lmzoo import zoo
from lmzoo.audit.gradient_horizon import gradient_horizon, half_life
from lmzoo.command_line import nested, read_settings
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus, read_spec
from lmzoo.errors import UserError
from lmzoo.train.trained import open_run

SEQUENCES = 64
"""How many sequences the norms are means over."""

USUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn_lm": ("rnn_lm", {}),
    "lstm_lm": ("lstm_lm", {}),
    "f ≈ 0": ("lstm_lm", {"cell": {"forget_bias": -5.0}}),
    "f ≈ 1": ("lstm_lm", {"cell": {"forget_bias": 5.0}}),
    "f = 1": ("lstm_no_forget", {}),
    "gru": ("gru", {}),
    "DLM46": ("DLM46", {}),
}
"""What is shown where nothing is asked for: S4's comparison, and two rows beside it."""


def horizon(
    names: Annotated[list[str] | None, typer.Argument(help="Rows, seed ids or folders of trained runs.")] = None,
    corpus: Annotated[str, typer.Option(help="Where untrained rows get sequences from.")] = "captions",
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
    fields: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE for rows: model.width=64")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the rows' weights.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:  # fmt: skip
    """The gradient of the last token's loss in the state d steps before, relative to d = 1."""
    chosen = nested(read_settings(fields or []), "model")
    asked = {name: (name, chosen) for name in names} if names else USUAL
    found: dict[str, Tensor] = {}
    for label, (name, settings) in asked.items():
        if Path(name).is_dir():
            run = open_run(Path(name), data_dir)
            model, data = run.model, run.corpus
        else:
            data = open_corpus(read_spec(corpus), data_dir)
            model = zoo.build(zoo.config(name, **settings), data.task, seed)
        found[label] = _measure(model, data)
    if as_json:
        typer.echo(json.dumps({name: norms.tolist() for name, norms in found.items()}))
        return
    _print(found)


def _measure(model: LanguageModel, corpus: Corpus) -> Tensor:
    """Over the test split's sequences of the commonest length."""
    lengths = corpus.test.lengths
    length = int(lengths.mode().values)
    if length < 3:
        raise UserError(f"{corpus.name}: sequences of {length} tokens have no horizon; 3 at least")
    tokens = corpus.test.tokens[lengths == length][:SEQUENCES, :length]
    return gradient_horizon(model, tokens)


def _print(found: dict[str, Tensor]) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("steps back", justify="right")
    for name in found:
        table.add_column(name, justify="right")
    for d in range(max(map(len, found.values()))):
        cells = [f"{float(g[d] / g[0]):.3g}" if d < len(g) else "" for g in found.values()]
        table.add_row(str(d + 1), *cells)
    halves = [half_life(norms) for norms in found.values()]
    table.add_row("half at", *(str(d) if d else "never" for d in halves))
    console = Console()
    console.print(table)
    console.print("gradient of the last token's loss, relative to one step back", style="dim")
