"""`lmzoo audit`: whether rows are the normalised causal densities that they are declared to be."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from lmzoo import zoo
from lmzoo.base.command_line import nest_settings, parse_settings
from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.cli.common import ModelSettings, describe_cuts
from lmzoo.lab.cli.run_names import RUN_HELP, Runs, find_run
from lmzoo.lab.cli.tables import AsJson, new_table
from lmzoo.lab.store.records import RUNS, RunFolder
from lmzoo.laws.audit import LONGEST, Audit, audit, with_published_norm
from lmzoo.laws.gradients import TOLERANCE
from lmzoo.laws.probes import LENGTH, PROBES
from lmzoo.laws.subjects import is_outside, load_model
from lmzoo.laws.tiny import TASK
from lmzoo.laws_of_training.iid_floor import IidFloor, iid_floor
from lmzoo.train.trained import read_model_config

Fields = dict[str, Any]
Row = dict[str, Any]
"""The outcome of a case, as `--json` prints it."""


@dataclass(frozen=True)
class Case:
    """A configuration to audit."""

    name: str
    variant: str
    """'' for the row itself, `published` for the normalisation of S0, or the settings."""
    config: Any
    score: str | None
    """Kind of the score; None for a model from outside the zoo."""
    length: int | None = None


def audit_rows(
    names: Annotated[list[str] | None, typer.Argument(help=f"Rows, or ids such as DLM46. {RUN_HELP} stand for its model. FILE.py:NAME is a function or a torch module, hf:PATH a causal model of transformers with random weights.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Audit every row, and every row with the leaking normalisation of S0.")] = False,
    fields: ModelSettings = None,
    length: Annotated[int | None, typer.Option(min=2, max=LONGEST, help=f"Length of the sequences.  [default: that of a run, {LENGTH} for a row; {LENGTH}, 131, 302 and twice each chunk or window that it names for FILE.py:NAME]")] = None,
    vocab: Annotated[int | None, typer.Option(min=2, help="Size of the vocabulary of FILE.py:NAME.")] = None,
    logits: Annotated[bool, typer.Option("--logits", help="FILE.py:NAME returns logits, not log-probabilities.")] = False,
    gradients: Annotated[bool, typer.Option("--gradients", help="Also compare the backward pass with difference quotients.")] = False,
    iid: Annotated[int, typer.Option("--iid", min=0, help="Also train this number of steps on i.i.d. uniform tokens.")] = 0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """Test whether scores depend on later tokens, their own token, padding, the rest of the batch or the way they are computed.

    The exit code is 1 if a row has a fault. With --all, rows are also audited with the leaking input normalisation of S0, whose faults are expected and do not change the exit code.
    """
    cases = list(_cases(names or [], parse_settings(fields or []), runs, every=every))
    outside = [case for case in cases if case.score is None]
    if not outside and (vocab or logits):
        raise UserError("--vocab and --logits are for FILE.py:NAME; leave them out for rows")
    if len(outside) == len(cases) and (fields or iid):
        raise UserError("--set and --iid are for rows; leave them out for FILE.py:NAME")
    # Progress goes to stderr, so that --json is whole.
    console = Console(stderr=True)
    quiet = len(cases) < 4
    if not console.is_terminal:
        quiet = True
    rows = []
    for case in track(cases, "auditing", console=console, transient=True, disable=quiet):
        most = length
        if most is None:
            most = case.length
        found = audit(case.config, vocab, most, logits=logits, gradients=gradients)
        rows.append(_row(case, found, _train_on_iid(case, iid)))
    if as_json:
        echo(json.dumps(rows, indent=1))
    else:
        _print(rows)
    return int(any(map(_is_unexpected, rows)))


def _cases(names: list[str], settings: Fields, runs: Path, *, every: bool) -> Iterator[Case]:
    if every == bool(names):
        raise UserError("audit needs either names of rows or --all")
    if every:
        names = [name for name in zoo.names() if zoo.row(name).model is not None]
    model_fields = nest_settings(settings, "model")
    for name in names:
        if is_outside(name):
            yield Case(name, "", load_model(name), None)
            continue
        if not zoo.is_row(name):
            yield _case_of_run(name, runs, model_fields)
            continue
        row = zoo.row(name)
        config = zoo.config(name, **model_fields)
        yield Case(row.name, _variant(settings, config), config, row.score)
        if every:
            leaking = with_published_norm(config)
            if leaking is not None:
                yield Case(row.name, "published", leaking, row.score)


def _variant(settings: Fields, config: Any) -> str:
    """Return the settings, the cuts by their names."""
    if not settings:
        return ""
    words = [f"{path}={value}" for path, value in settings.items() if path != "model.cell.cuts"]
    cuts = describe_cuts(getattr(config, "cell", None))
    if cuts:
        words.append(cuts)
    return " ".join(words)


def _case_of_run(name: str, runs: Path, model_fields: Fields) -> Case:
    folder = RunFolder(find_run(name, runs))
    length = (folder.config or {}).get("length", LENGTH)
    config = zoo.change(read_model_config(folder), model_fields)
    # A field may change the kind of the score.
    score = zoo.build(config, TASK).score.value
    return Case(name, "", config, score, min(length, LONGEST))


def _train_on_iid(case: Case, steps: int) -> IidFloor | None:
    """Train a row that is a density, or a bound of one, on i.i.d. tokens."""
    # Other scores have no floor.
    if not steps or case.score not in ("exact", "bound"):
        return None
    if zoo.build(case.config, TASK).conditional:
        return None
    return iid_floor(case.config, steps=steps)


def _row(case: Case, found: Audit, floor: IidFloor | None) -> Row:
    """Return the outcome of a case, with all faults of the audit and of the training."""
    faults = list(found.faults)
    iid = None
    if floor:
        iid = asdict(floor)
        if floor.fault:
            faults.append(floor.fault)
    row: Row = {"name": case.name, "variant": case.variant, "score": case.score}
    row |= found.deviations
    return row | {
        "length": found.length,
        "gradients": found.gradients,
        "notes": list(found.notes),
        "iid": iid,
        "faults": faults,
        "tolerance": found.tolerance,
    }


def _is_unexpected(row: Row) -> bool:
    """Return whether there are faults that the published normalisation does not explain."""
    if row["variant"] == "published":
        return False
    return len(row["faults"]) > 0


def _print(rows: list[Row]):
    names = {name: probe.heading.replace(" ", "\n") for name, probe in PROBES.items()}
    # Two more columns, of probes that cost more.
    names |= {"gradients": "backward", "iid": "iid − log V"}
    cells = [_cells(row) for row in rows]
    shown = [name for name in names if any(of_row.get(name) for of_row in cells)]
    table = new_table("row", "score", right=tuple(names[name] for name in shown))
    table.add_column("verdict")
    table.columns[0].overflow = "fold"
    table.columns[0].min_width = 8
    for column in table.columns[1:]:
        column.no_wrap = True  # a narrow terminal breaks names, not numbers
    console = Console(highlight=False)
    lines = []
    for row, of_row in zip(rows, cells, strict=True):
        label = row["name"]
        if row["variant"] == "published":
            # Its faults are expected: the table says where they are from.
            label += ", published"
        verdict = "passes"
        if row["faults"]:
            verdict = "[red]fails[/]"
        values = [of_row.get(name, "") for name in shown]
        table.add_row(label, row["score"] or "", *values, verdict)
        lines += [f"{label}: {text}" for text in row["faults"] + row["notes"]]
    variants = {row["variant"] for row in rows} - {"", "published"}
    if variants:
        console.print(f"with {'; '.join(sorted(variants))}", markup=False)
    console.print(table)
    for line in lines:
        console.print(line, markup=False)
    console.print(
        f"{len(rows)} audited, {sum(map(_is_unexpected, rows))} with unexpected faults; columns "
        "show the largest deviation in each probe, blank where the probe does not apply",
        style="dim",
    )


def _cells(row: Row) -> dict[str, str]:
    """Return the numbers of an audit as the table shows them."""
    cells = {name: _format(row[name]) for name in PROBES}
    if row["gradients"]:
        # In the unit of the other probes, relative to its tolerance.
        cells["gradients"] = _format(TOLERANCE * max(row["gradients"].values()))
    if row["iid"]:
        cells["iid"] = f"{row['iid']['loss'] - row['iid']['floor']:+.3f}"
    return cells


def _format(value: float | None) -> str:
    if value is None:
        return ""
    if value == 0:
        return "0"
    # Small deviations differ by orders of magnitude.
    if value < 1e-3:
        return f"{value:.0e}"
    return f"{value:.2f}"
