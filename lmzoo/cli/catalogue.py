"""`list` and `describe`: what there is, and what a row is made of."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import lmzoo.inspect.techniques  # noqa: F401  they are listed beside the models
from lmzoo import zoo
from lmzoo.catalogue import Row
from lmzoo.config import to_dict
from lmzoo.contract import Task
from lmzoo.search_space import ranges
from lmzoo.train.packed.compatibility import reason_not_packable

TASK = Task(vocab=1000, length=20, source_vocab=1000, source_length=20)
"""The sizes at which parameters are counted."""


def list_rows(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
) -> None:
    """Every row of the zoo: name, seed ids, family, what its number is, parameters, source."""
    rows = [_facts(zoo.row(name)) for name in zoo.names()]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("name", "aliases", "family", "score"):
        widest = max(len(_cell(row[column])) for row in rows)
        table.add_column(column, no_wrap=True, min_width=widest)
    table.add_column("parameters", justify="right", no_wrap=True, min_width=10)
    table.add_column("summary", no_wrap=True, overflow="ellipsis")
    for row in rows:
        count = f"{row['parameters']:,}" if row["parameters"] is not None else ""
        facts = [_cell(row[column]) for column in ("name", "aliases", "family", "score")]
        table.add_row(*facts, count, row["summary"])
    console = Console()
    console.print(table)
    console.print(f"{len(rows)} rows; parameters at V={TASK.vocab}, T={TASK.length}", style="dim")


def _cell(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)


def describe(name: Annotated[str, typer.Argument(help="A row's name or seed id: DLM46.")]) -> None:
    """What a row is, its default config, and where its fields may be searched."""
    row = zoo.row(name)
    facts = _facts(row)
    console = Console()
    console.print(f"[bold]{row.name}[/] {' '.join(row.aliases)}  {row.summary}", highlight=False)
    console.print(
        f"family {row.family}, score {row.score or '—'}, source {row.source}", highlight=False
    )
    if row.model is None:
        return
    config = zoo.config(row.name)
    console.print(
        f"{facts['parameters']:,} parameters at V={TASK.vocab}, T={TASK.length}", highlight=False
    )
    state = facts["state_size"]
    console.print(
        f"state: {state if state is not None else 'grows with the prefix, or none'} floats a step"
    )
    reason = reason_not_packable(zoo.build(config, TASK))
    console.print(f"fused: {f'no, {reason}' if reason else 'yes'}", highlight=False)
    console.print_json(data=to_dict(config))
    for field, where in ranges(type(config)).items():
        console.print(f"search {field}: {where}", highlight=False)
    for equations in _equations(config):
        console.print(f"\n{equations}", highlight=False, markup=False, soft_wrap=True)


def _equations(config: Any) -> Iterator[str]:
    """What stands at the head of the files that a config's model is made of."""
    yield (sys.modules[type(config).__module__].__doc__ or "").strip()
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            yield from _equations(part)


def _facts(row: Row) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": row.name,
        "aliases": list(row.aliases),
        "family": row.family,
        "score": row.score,
        "document": row.document,
        "source": row.source,
        "summary": row.summary,
        "model": row.model,
        "parameters": None,
        "state_size": None,
    }
    if row.model is not None:
        built = zoo.build(zoo.config(row.name), TASK)
        facts["parameters"] = sum(p.numel() for p in built.parameters())
        facts["state_size"] = built.state_size
    return facts
