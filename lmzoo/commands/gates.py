"""`gates`: how open the gates of a row, or of a trained run, are; how widely its attention looks."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.open import open_corpus, read_spec
from lmzoo.diagnostics.attention import Edges, Head, edges, heads
from lmzoo.diagnostics.gates import Carry, Gate, carries, gates
from lmzoo.diagnostics.watch import watched
from lmzoo.edge import nested, read_settings
from lmzoo.errors import UserError
from lmzoo.trained import open_run

SEQUENCES = 64
"""How many sequences the numbers are means over."""


def gates_of(
    name: Annotated[str, typer.Argument(metavar="RUN_OR_NAME", help="A run's folder, or a row with its initial weights.")],
    corpus: Annotated[str, typer.Option(help="Where an untrained row gets sequences from.")] = "captions",
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
    fields: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE for a row: model.width=64")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of a row's weights.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:  # fmt: skip
    """Gates by name (mean, spread, saturated), norms of the state, entropies and edges of attention."""
    if Path(name).is_dir():
        run = open_run(Path(name), data_dir)
        model, data = run.model, run.corpus
    else:
        data = open_corpus(read_spec(corpus), data_dir)
        chosen = nested(read_settings(fields or []), "model")
        model = zoo.build(zoo.config(name, **chosen), data.task, seed)
    found = look(model, alike(data), name)
    if as_json:
        typer.echo(
            json.dumps({key: list(map(dataclasses.asdict, rows)) for key, rows in found.items()})
        )
        return
    _print(found)


def alike(corpus: Corpus) -> Sequences:
    """Validation sequences of the commonest lengths, cut to them: no pad is looked at."""
    part = corpus.valid
    length = part.lengths.mode().values
    kept = part.lengths == length
    given = part.given
    if given:
        source_length = given[1][kept].mode().values
        kept = kept & (given[1] == source_length)
        given = (given[0][kept][:SEQUENCES, :source_length], given[1][kept][:SEQUENCES])
    return Sequences(part.tokens[kept][:SEQUENCES, :length], part.lengths[kept][:SEQUENCES], given)


@torch.no_grad()
def look(model: LanguageModel, part: Sequences, name: str) -> dict[str, list[Any]]:
    """What there is to be told of the model while it scores these sequences.

    Raises:
        UserError: it has neither a gate nor an attention that is asked.
    """
    with torch.random.fork_rng(devices=[]), watched(model.eval()) as seen:
        torch.manual_seed(0)
        model.log_prob(part.tokens, part.lengths, *part.given)
    if not seen.steps and not seen.looks:
        raise UserError(
            f"{name} has neither a recurrent cell nor attention; give a row such as gru or gpt"
        )
    return {
        "gates": gates(seen),
        "states": carries(seen),
        "heads": heads(model, seen),
        "edges": edges(model, seen, len(part)),
    }


def _print(found: dict[str, list[Any]]) -> None:
    console = Console()
    if found["gates"]:
        console.print(_gates(found["gates"]))
    if found["states"]:
        console.print(_states(found["states"]))
    if found["heads"]:
        console.print(_heads(found["heads"]))
        console.print(_edges(found["edges"]), style="dim", highlight=False)


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
