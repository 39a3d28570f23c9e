"""A dry run: prints the pending work of a study, with a time estimate from a few real steps."""

import json
import os
import time
from typing import TYPE_CHECKING

import torch
from rich.console import Console as RichConsole

from lmzoo import zoo
from lmzoo.contract import LanguageModel
from lmzoo.data.batches import epoch_batches, gather_batch
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.errors import UserError, describe_error
from lmzoo.streams import echo
from lmzoo.study.planner import Planner
from lmzoo.study.resolve import ResolvedPoint
from lmzoo.sweep.fleet.time_left import duration

if TYPE_CHECKING:
    from lmzoo.cluster.resources import Resources

STEPS = 3
"""Training steps timed for an estimate, after one that is not timed."""


def print_dry_run(
    planner: Planner, corpus: Corpus, resources: "Resources", *, as_json: bool
) -> None:
    """Print the pending runs of each point, and the time they take at most on this machine."""
    slots = resources.concurrent or max(1, int((os.cpu_count() or 1) / resources.cpus))
    rows, total = [], 0.0
    for point, runs, epochs in planner.pending():
        try:
            seconds = seconds_per_epoch(point.point, corpus)
        except Exception as error:
            raise UserError(
                f"point {point.point.label!r} cannot be trained: {describe_error(error)}"
            ) from error
        total += seconds * epochs / slots
        rows.append(
            {
                "point": point.point.display_label,
                "aliases": point.point.display_aliases,
                "runs": runs,
                "epochs": epochs,
                "seconds_per_epoch": round(seconds, 3),
            }
        )
    if as_json:
        echo(json.dumps({"points": rows, "seconds": round(total), "slots": slots}))
        return
    out = RichConsole()
    out.print(f"[bold]{planner.study.question}[/]\n{corpus.name}: {corpus.source}")
    for row in rows:
        aliases = f" ≡ {', '.join(row['aliases'])}" if row["aliases"] else ""
        out.print(
            f"  {row['point']}{aliases}: {row['runs']} runs, at most {row['epochs']} epochs "
            f"of {row['seconds_per_epoch']:.2f} s",
            highlight=False,
        )
    time_left = f"at most about {duration(total)}" if rows else "nothing left to do"
    out.print(f"{time_left}, {slots} runs at a time, in {planner.store.store}")


def seconds_per_epoch(point: ResolvedPoint, corpus: Corpus) -> float:
    """Return the estimated seconds of one training epoch on one thread of this machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = zoo.build(point.model, corpus.task, seed=0)
        part = corpus.train.for_epoch(0)
        batches = epoch_batches(part.lengths, point.recipe.batch, seed=0, epoch=0)
        _step(model, part, batches[0])
        timed = batches[1 : 1 + STEPS]
        start = time.perf_counter()
        for rows in timed:
            _step(model, part, rows)
        seconds = time.perf_counter() - start
        return seconds / max(1, len(timed)) * len(batches)
    finally:
        torch.set_num_threads(threads)


def _step(model: LanguageModel, part: Sequences, rows: torch.Tensor) -> None:
    batch = gather_batch(part, rows)
    loss = -model.log_prob(batch.tokens, batch.lengths, *batch.sources).sum()
    if loss.requires_grad:
        loss.backward()
