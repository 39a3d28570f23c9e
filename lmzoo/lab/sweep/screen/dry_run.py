"""A dry run: prints the pending work of a study, with a time estimate from a few real steps."""

import json
import os
import shlex
from typing import TYPE_CHECKING

from rich.console import Console as RichConsole

from lmzoo.base.errors import UserError, describe_error
from lmzoo.base.printed import duration
from lmzoo.base.streams import echo
from lmzoo.lab.study.planner import Planner

if TYPE_CHECKING:
    from lmzoo.lab.cluster.resources import Resources


def print_dry_run(planner: Planner, source: str, resources: "Resources", *, as_json: bool) -> None:
    """Print the pending runs of each point and their time at most.

    The time of a function or a command is not known. `source` says what the data are.
    """
    slots = resources.concurrent or max(1, int((os.cpu_count() or 1) / resources.cpus))
    rows = []
    total = 0.0
    unknown = 0
    for point, runs, epochs in planner.pending():
        try:
            seconds = point.point.seconds_per_epoch()
        except Exception as error:
            raise UserError(
                f"point {point.point.label!r} cannot be trained: {describe_error(error)}"
            ) from error
        total += (seconds or 0.0) * epochs / slots
        unknown += seconds is None
        rows.append(
            {
                "point": point.point.display_label,
                "aliases": point.point.display_aliases,
                **point.point.sizes(),
                "runs": runs,
                "epochs": epochs,
                "seconds_per_epoch": None if seconds is None else round(seconds, 3),
            }
        )
    if as_json:
        echo(json.dumps({"points": rows, "seconds": round(total), "slots": slots}))
        return
    out = RichConsole(soft_wrap=True, markup=False)
    out.print(f"{planner.study.question}\n{source}")
    for row in rows:
        seconds = row["seconds_per_epoch"]
        aliases = f" ≡ {', '.join(row['aliases'])}" if row["aliases"] else ""
        out.print(
            f"  {row['point']}{aliases}: {row['runs']} runs, at most {row['epochs']} epochs"
            + ("" if seconds is None else f" of {seconds:.2f} s")
            + "".join(f"; {name} {row[name]:,}" for name in ("width", "parameters") if name in row),
            highlight=False,
        )
    time_left = f"at most about {duration(total)}" if rows else "nothing left to do"
    if unknown:
        time_left = (f"{time_left}, and " if total else "") + "epochs whose time is not known"
    store = planner.store.store
    command = f"lmzoo plan {shlex.quote(str(store))} --effect X"
    out.print(f"after a sweep, {command} says how many seeds show X")
    out.print(f"{time_left}, {slots} runs at a time, in {store}")
