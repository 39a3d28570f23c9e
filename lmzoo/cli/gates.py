"""`gates`: how open the gates of a row, or of a trained run, are; how widely its attention looks."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lmzoo import zoo
from lmzoo.command_line import nested, read_settings
from lmzoo.data.open import open_corpus, read_spec
from lmzoo.errors import UserError
from lmzoo.inspect.attention import Edges, Head
from lmzoo.inspect.gates import Carry, Gate
from lmzoo.inspect.history import Series, measured, series
from lmzoo.inspect.summary import Found, equal_length_sequences, plain, summarise_activity
from lmzoo.store.records import Record, RunFolder
from lmzoo.train.trained import open_run

SHOWN = 6
"""Epochs in a table, the first and the last among them; a picture has all."""


def gates_of(
    name: Annotated[str, typer.Argument(metavar="RUN_OR_NAME", help="A run's folder, or a row with its initial weights.")],
    corpus: Annotated[str, typer.Option(help="Where an untrained row gets sequences from.")] = "captions",
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
    fields: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE for a row: model.width=64")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of a row's weights.")] = 0,
    picture: Annotated[Path | None, typer.Option(help="Draw the epochs of a run trained with --gates: FILE.png")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:  # fmt: skip
    """Gates by name (mean, spread, saturated), norms of the state, entropies and edges of attention.

    Of a run that was trained with --gates, also how they came to be, epoch by epoch.
    """
    events: list[Record] = []
    if Path(name).is_dir():
        run = open_run(Path(name), data_dir)
        model, data, title = run.model, run.corpus, f"{run.row} on {run.corpus.name}"
        events = measured(RunFolder(Path(name)).records())
    else:
        data = open_corpus(read_spec(corpus), data_dir)
        chosen = nested(read_settings(fields or []), "model")
        model, title = zoo.build(zoo.config(name, **chosen), data.task, seed), name
    if picture is not None:
        _draw(events, title, name, picture)
    found = summarise_activity(model, equal_length_sequences(data), name)
    if as_json:
        over = [{key: value for key, value in one.items() if key != "event"} for one in events]
        typer.echo(json.dumps({**plain(found), "epochs": over}))
        return
    _print(found)
    if events:
        _print_epochs(series(events), [one["epoch"] for one in events])


def _draw(events: list[Record], title: str, name: str, path: Path) -> None:
    if path.suffix != ".png":
        raise UserError(f"--picture {path} does not end in .png; give FILE.png")
    if not events:
        raise UserError(
            f"--picture: {name} has no epochs to draw; `python -m lmzoo train NAME --gates` makes a "
            "run that has"
        )
    # Drawing is loaded here: no other command should wait for it.
    from lmzoo.inspect.plots import save_png
    from lmzoo.inspect.plots_epochs import epochs_picture

    path.parent.mkdir(parents=True, exist_ok=True)
    save_png(epochs_picture(series(events), [one["epoch"] for one in events], title), path)


def _print(found: Found) -> None:
    console = Console()
    if found["gates"]:
        console.print(_gates(found["gates"]))
    if found["states"]:
        console.print(_states(found["states"]))
    if found["heads"]:
        console.print(_heads(found["heads"]))
        console.print(_edges(found["edges"]), style="dim", highlight=False)


def _print_epochs(every: list[Series], epochs: list[int]) -> None:
    last = len(epochs) - 1
    shown = sorted({round(i * last / (SHOWN - 1)) for i in range(SHOWN)})
    table = _table("", "at epoch", "", *(str(epochs[i]) for i in shown))
    for one in every:
        values = [one.values[i] for i in shown]
        cells = ["—" if value is None else f"{value:.3f}" for value in values]
        table.add_row(one.where, one.what, one.fact, *cells)
    Console().print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number > 1 else "left")
    return table


def _gates(rows: list[Gate]) -> Table:
    table = _table("cell", "gate", "mean", "spread", "saturated")
    for gate in rows:
        numbers = f"{gate.mean:.3f}", f"{gate.spread:.3f}", f"{gate.saturated:.1%}"
        table.add_row(gate.cell, gate.name, *numbers)
    return table


def _states(rows: list[Carry]) -> Table:
    table = _table("cell", "state", "norm at step 1", "halfway", "at the last")
    for row in rows:
        for number, norms in enumerate(row.norms, 1):
            shown = norms[0], norms[len(norms) // 2], norms[-1]
            table.add_row(row.cell, str(number), *(f"{norm:.3g}" for norm in shown))
    return table


def _heads(rows: list[Head]) -> Table:
    table = _table("attention", "head", "entropy", "widest", "‖q‖", "‖k‖")
    for row in rows:
        facts = row.entropy, row.widest, row.query_norm, row.key_norm
        table.add_row(row.layer, str(row.head + 1), *(f"{fact:.3f}" for fact in facts))
    return table


def _edges(rows: list[Edges]) -> str:
    total, seen = sum(row.edges for row in rows), sum(row.seen for row in rows)
    return f"{total:,} edges a sequence (heads x queries x memory), of which {seen:,} are seen"
