"""A dry run: prints the pending work of a study, with a time estimate from a few real steps."""

import json
import os
import shlex
from typing import TYPE_CHECKING

from rich.console import Console as RichConsole

from lmzoo.base.errors import UserError, describe_error
from lmzoo.base.plain import Fields
from lmzoo.base.printed import duration
from lmzoo.base.streams import echo
from lmzoo.lab.study.planner import Planner

if TYPE_CHECKING:
    from lmzoo.lab.cluster.resources import Resources


def print_dry_run(planner: Planner, source: str, resources: "Resources", *, as_json: bool):
    """Print the pending runs of each point and their time at most.

    The time of a function or a command is not known. `source` says what the data are.
    """
    # Without Ray the room of a cluster is not known: this machine is assumed.
    slots = resources.concurrent
    if not slots:
        cores = os.cpu_count() or 1
        slots = max(1, int(cores / resources.cpus))
    rows = []
    total = 0.0
    unknown = 0
    for point, runs, epochs in planner.pending():
        try:
            seconds = point.point.seconds_per_epoch()
        # A step was really trained: what no worker could train fails here.
        except Exception as error:
            raise UserError(
                f"point {point.point.label!r} cannot be trained: {describe_error(error)}"
            ) from error
        # Of a function or a command nobody knows how long an epoch takes.
        if seconds is None:
            unknown += 1
        else:
            total += seconds * epochs / slots
            seconds = round(seconds, 3)
        rows.append(
            {
                "point": point.point.display_label,
                "aliases": point.point.display_aliases,
                **point.point.sizes(),
                "runs": runs,
                "epochs": epochs,
                "seconds_per_epoch": seconds,
            }
        )
    if as_json:
        facts = {"points": rows, "seconds": round(total), "slots": slots}
        echo(json.dumps(facts))
        return
    # A label may have brackets, which rich would read as markup.
    out = RichConsole(soft_wrap=True, markup=False)
    out.print(f"{planner.study.question}\n{source}")
    for row in rows:
        out.print(_row_line(row), highlight=False)
    time_left = f"at most about {duration(total)}"
    if not rows:
        time_left = "nothing left to do"
    elif unknown and total:
        time_left += ", and epochs whose time is not known"
    elif unknown:
        time_left = "epochs whose time is not known"
    store = planner.store.store
    command = f"lmzoo plan {shlex.quote(str(store))} --effect X"
    out.print(f"after a sweep, {command} says how many seeds show X")
    out.print(f"{time_left}, {slots} runs at a time, in {store}")


def _row_line(row: Fields) -> str:
    """Return `  GRU ≡ other label: 5 runs, at most 50 epochs of 0.20 s; parameters 2,304`."""
    label = row["point"]
    if row["aliases"]:
        label += f" ≡ {', '.join(row['aliases'])}"
    text = f"  {label}: {row['runs']} runs, at most {row['epochs']} epochs"
    if row["seconds_per_epoch"] is not None:
        text += f" of {row['seconds_per_epoch']:.2f} s"
    for name in ("width", "parameters"):
        if name in row:
            text += f"; {name} {row[name]:,}"
    return text
