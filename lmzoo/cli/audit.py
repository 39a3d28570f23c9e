"""`audit`: is a row, or every row, the normalised causal density it claims to be?"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lmzoo import zoo
from lmzoo.audit.causality import TASK, Audit, audit, published
from lmzoo.command_line import nested, read_settings
from lmzoo.errors import UserError
from lmzoo.experiments.iid_floor import IidFloor, iid_floor

QUIET = 10.0
"""Seconds without a word, at most, where there is no terminal."""
QUESTIONS = ("future", "itself", "total", "pads", "mates")


@dataclass(frozen=True)
class Case:
    """One configuration to be questioned."""

    name: str
    variant: str
    """'' for the row as it stands, `published` for S0's leaking normaliser, or the settings."""
    config: Any


def audit_rows(
    names: Annotated[list[str] | None, typer.Argument(help="Rows or seed ids: DLM46 gpt ...")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every row, and every published leak.")] = False,
    fields: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE: model.norm=time_std")] = None,
    iid: Annotated[int, typer.Option("--iid", min=0, help="Also train so many steps on i.i.d. uniform tokens.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
) -> int:  # fmt: skip
    """Measure whether rows read the future, themselves, pads or batch-mates; exit 1 if one does.

    With --all, S0's published configurations are questioned too and should be found out:
    they do not make the exit code 1.
    """
    cases = list(_cases(names or [], read_settings(fields or []), every=every))
    found, wrong = [], False
    for case in _followed(cases, Console(stderr=True)):
        result = audit(case.config)
        floor = _floor(case.config, iid) if iid else None
        faults = [*result.faults, *([floor.fault] if floor and floor.fault else [])]
        wrong |= bool(faults) and case.variant != "published"
        found.append((case, result, floor, faults))
    if as_json:
        typer.echo(json.dumps([_facts(*each) for each in found], indent=1))
    else:
        _print(found, iid=bool(iid))
    return 1 if wrong else 0


def _cases(names: list[str], settings: dict[str, Any], *, every: bool) -> Iterator[Case]:
    if every == bool(names):
        raise UserError("audit wants the names of rows, or --all")
    if every:
        names = [name for name in zoo.names() if zoo.row(name).model is not None]
    chosen = nested(settings, "model")
    variant = " ".join(f"{path}={value}" for path, value in settings.items())
    for name in names:
        config = zoo.config(name, **chosen)
        yield Case(zoo.row(name).name, variant, config)
        leaking = published(config) if every else None
        if leaking is not None:
            yield Case(zoo.row(name).name, "published", leaking)


def _followed(cases: list[Case], note: Console) -> Iterator[Case]:
    """The cases, with a bar on a terminal and a line now and then elsewhere."""
    if note.is_terminal:
        yield from track(cases, "auditing", console=note, transient=True, disable=len(cases) < 4)
        return
    said = time.monotonic()
    for done, case in enumerate(cases):
        if time.monotonic() - said >= QUIET:
            note.print(f"audited {done} of {len(cases)} configurations")
            said = time.monotonic()
        yield case


def _floor(config: Any, steps: int) -> IidFloor | None:
    """Where the model claims a probability, without a source, of sequences."""
    model = zoo.build(config, TASK)
    if model.conditional or model.score.value not in ("exact", "bound"):
        return None
    return iid_floor(config, steps=steps)


def _facts(case: Case, result: Audit, floor: IidFloor | None, faults: list[str]) -> dict[str, Any]:
    return {
        "name": case.name,
        "variant": case.variant,
        "score": _score(case),
        **asdict(result),
        "iid": asdict(floor) if floor else None,
        "faults": faults,
    }


def _score(case: Case) -> str:
    return zoo.row(case.name).score


def _print(found: list[Any], *, iid: bool) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("row", no_wrap=True, min_width=max(len(case.name) for case, *_ in found))
    for column in ("variant", "score"):
        table.add_column(column, overflow="fold")
    for column in (*QUESTIONS, *(["iid − log V"] if iid else [])):
        table.add_column(column, justify="right", no_wrap=True, min_width=6)
    table.add_column("verdict", overflow="fold")
    for case, result, floor, faults in found:
        cells = [_number(getattr(result, question)) for question in QUESTIONS]
        if iid:
            cells.append(f"{floor.loss - floor.floor:+.3f}" if floor else "")
        verdict = f"[red]{'; '.join(faults)}[/]" if faults else "passes"
        table.add_row(case.name, case.variant, _score(case), *cells, verdict)
    console = Console()
    console.print(table)
    bad = sum(1 for case, _, _, faults in found if faults and case.variant != "published")
    console.print(
        f"{len(found)} configurations, {bad} that should pass and do not; "
        "largest deviation by each question, blank where it makes no claim",
        style="dim",
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "0" if value == 0 else f"{value:.0e}" if value < 1e-3 else f"{value:.2f}"
