"""Time of a training step of every row, relative to the aggregate Markov model (DLM10).

    python benchmarks/rows.py --corpus multi30k_en --data-dir DIR

Each row is measured in interleaved A/B runs with DLM10, in one process on one thread, so slow
changes of the machine's speed cancel. The seconds are CPU time, because other processes interrupt
long steps more often than short ones. A count model is measured by its one pass over the data,
divided by the number of batches of an epoch. Prints a Markdown table, the slowest row first.
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from lmzoo import zoo
from lmzoo.command_line import run_command
from lmzoo.contract import LanguageModel
from lmzoo.data.batches import epoch_batches, gather_batch
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus

RIVAL = "aggregate_markov"
BATCH = 100


def main(
    corpus: Annotated[str, typer.Option()] = "captions",
    data_dir: Annotated[Path | None, typer.Option()] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Steps of each row.")] = 3,
    family: Annotated[
        list[str] | None, typer.Option(help="Families of rows; default: all.")
    ] = None,
) -> None:
    """Print the time of a step of every row and its ratio to that of DLM10."""
    torch.set_num_threads(1)
    data = open_corpus(corpus, data_dir)
    rival = _model(RIVAL, data)
    rows = []
    for name in zoo.names():
        row = zoo.row(name)
        if row.model and name != RIVAL and (not family or row.family in family):
            sys.stderr.write(f"{name}\n")
            rows.append((name, *_compare(_model(name, data), rival, data, rounds)))
    rows.sort(key=lambda row: -row[1])
    typer.echo(f"batch {BATCH}, {data.name}, V={len(data.vocabulary)}, median of {rounds} rounds\n")
    typer.echo("| row | ratio to DLM10 | ms a step |\n|---|---:|---:|")
    for name, ratio, ms in rows:
        typer.echo(f"| {name} | {ratio:.1f} | {ms:.0f} |")


def _model(name: str, data: Corpus) -> LanguageModel:
    return zoo.build(zoo.config(name), data.task)


def _compare(
    model: LanguageModel, rival: LanguageModel, data: Corpus, rounds: int
) -> tuple[float, float]:
    """Return the median ratio of step times, and the row's median milliseconds."""
    batches = epoch_batches(data.train.lengths, BATCH, seed=0, epoch=0)
    ratios, own = [], []
    for i in range(rounds + 1):
        batch = batches[i % len(batches)]
        mine = _seconds(model, data, batch, len(batches))
        theirs = _seconds(rival, data, batch, 1)
        if i:  # the first is a warm-up
            ratios.append(mine / theirs)
            own.append(mine)
    return statistics.median(ratios), statistics.median(own) * 1e3


def _seconds(model: LanguageModel, data: Corpus, rows: torch.Tensor, batches: int) -> float:
    """Return the CPU seconds of one step on these rows of the data."""
    start = time.process_time()
    if model.closed_form:
        model.fit_closed_form(data.train.tokens, data.train.lengths)
        return (time.process_time() - start) / batches
    batch = gather_batch(data.train, rows)
    model.zero_grad()
    (-model.log_prob(batch.tokens, batch.lengths).sum() / len(rows)).backward()
    return time.process_time() - start


if __name__ == "__main__":
    run_command(main)
