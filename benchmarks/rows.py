"""Time of a training step of every row, relative to a rival, the aggregate Markov model (DLM10).

    python benchmarks/rows.py --corpus multi30k_en --data-dir DIR
    python benchmarks/rows.py --rival lstm_lm --row min_gru --row lru

Each row is measured in interleaved A/B runs with the rival, in one process on one thread, so slow
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
    row: Annotated[list[str] | None, typer.Option(help="Rows; default: all.")] = None,
    rival: Annotated[str, typer.Option(help="The row that others are compared with.")] = RIVAL,
) -> None:
    """Print the time of a step of every row, its ratio to the rival's, and its parameters."""
    torch.set_num_threads(1)
    data = open_corpus(corpus, data_dir)
    other = _model(rival, data)
    rows = []
    for name in zoo.names():
        entry = zoo.row(name)
        wanted = (not family or entry.family in family) and (not row or name in row)
        if entry.model and name != rival and wanted:
            sys.stderr.write(f"{name}\n")
            model = _model(name, data)
            parameters = sum(parameter.numel() for parameter in model.parameters())
            rows.append((name, *_compare(model, other, data, rounds), parameters))
    rows.sort(key=lambda line: -line[1])
    typer.echo(f"batch {BATCH}, {data.name}, V={len(data.vocabulary)}, median of {rounds} rounds\n")
    typer.echo(f"| row | ratio to {rival} | ms a step | parameters |\n|---|---:|---:|---:|")
    for name, ratio, ms, parameters in rows:
        typer.echo(f"| {name} | {ratio:.2f} | {ms:.1f} | {parameters:,} |")


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
