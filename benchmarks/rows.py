"""Time of a training step of every row, relative to a rival, the aggregate Markov model (DLM10).

    python benchmarks/rows.py --corpus multi30k_en --data-dir DIR
    python benchmarks/rows.py --rival lstm_lm --row min_gru --row lru
    python benchmarks/rows.py --modern --corpus captions_char --width 64 --rounds 9

Each row is measured in interleaved A/B runs with the rival, in one process on one thread, so slow
changes of the machine's speed cancel. A step is forward and backward. The seconds are CPU time,
because other processes interrupt long steps more often than short ones. A count model is measured
by its one pass over the data, divided by the number of batches of an epoch. Prints a Markdown
table, the slowest row first; `--modern` also writes it to runs/bench/rows.md, for `publish.py`.
"""

import itertools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from measure import Work, interleave

from lmzoo import zoo
from lmzoo.base.command_line import run_command
from lmzoo.cli.catalogue import describe_state
from lmzoo.contract import LanguageModel
from lmzoo.data.batches import epoch_batches, gather_batch
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.train.pack_compatibility import reason_not_packable

RIVAL = "aggregate_markov"
LSTM = "lstm_lm"
MODERN = (
    *("rnn_lm", "gru", "min_gru", "min_lstm", "lru", "rg_lru", "hgrn2", "slstm"),
    *("retnet", "gla", "mamba", "mamba2", "deltanet", "gated_deltanet", "mlstm", "rwkv7"),
    *("min_gru_block", "gated_deltanet_block", "modern_decoder"),
)
"""Rows that the page compares with the LSTM."""
PAGE = Path("runs/bench/rows.md")
BATCH = 100


def main(
    corpus: Annotated[str, typer.Option()] = "captions",
    data_dir: Annotated[Path | None, typer.Option()] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Steps of each row.")] = 3,
    row: Annotated[list[str] | None, typer.Option(help="Rows; default: all.")] = None,
    rival: Annotated[str, typer.Option(help="The row that others are compared with.")] = RIVAL,
    width: Annotated[int, typer.Option(min=0, help="Width of all rows; 0: their own.")] = 0,
    *,
    modern: Annotated[
        bool, typer.Option("--modern", help="Recurrent cells since 2017, and the LSTM as rival.")
    ] = False,
) -> None:
    """Print the time of a step of every row, its ratio to the rival's, and its sizes."""
    torch.set_num_threads(1)
    if modern:
        row, rival = list(MODERN), LSTM
    data = open_corpus(corpus, data_dir)
    other = _model(rival, data, width)
    lines = [(1.0, _line(rival, other, "1"))]
    for name in zoo.names():
        if zoo.row(name).model and name != rival and (not row or name in row):
            sys.stderr.write(f"{name}\n")
            model = _model(name, data, width)
            ratios = _ratios(model, other, data, rounds)
            median = statistics.median(ratios)
            text = f"{median:.2f} | {min(ratios):.2f} to {max(ratios):.2f}"
            lines.append((median, _line(name, model, text)))
    table = f"| row | step time / {rival} | range | parameters | state of a sequence | packs |\n"
    table += "|---|---:|---|---:|---|---|\n"
    table += "".join(line for _, line in sorted(lines, key=lambda pair: -pair[0]))
    sizes = f"V={len(data.vocabulary)}, T={data.task.length}, batch {BATCH}"
    text = f"{data.name}, {sizes}, width {width or 'of the row'}, {rounds} rounds.\n\n{table}"
    typer.echo(text)
    if modern:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text)


def _line(name: str, model: LanguageModel, ratio: str) -> str:
    """Return the line of a row; `ratio` is one cell or two."""
    ratio = ratio if "|" in ratio else f"{ratio} | "
    parameters = sum(parameter.numel() for parameter in model.parameters())
    packs = "no" if reason_not_packable(model) else "yes"
    return f"| {name} | {ratio} | {parameters:,} | {describe_state(model)} | {packs} |\n"


def _model(name: str, data: Corpus, width: int) -> LanguageModel:
    config = zoo.config(name)
    if width and hasattr(config, "width"):
        config = zoo.config(name, width=width)
    return zoo.build(config, data.task)


def _ratios(model: LanguageModel, rival: LanguageModel, data: Corpus, rounds: int) -> list[float]:
    """Return the ratio of step times in every round."""
    batches = epoch_batches(data.train.lengths, BATCH, seed=0, epoch=0)
    steps = {"ours": _steps(model, data, batches), "theirs": _steps(rival, data, batches)}
    ours, theirs = interleave(steps, rounds).values()
    parts = len(batches) if model.closed_form else 1
    return [mine / parts / other for mine, other in zip(ours, theirs, strict=True)]


def _steps(model: LanguageModel, data: Corpus, batches: Sequence[torch.Tensor]) -> Work:
    """Return a step on the next batch, or the pass of a count model over all of them."""
    following = itertools.cycle(batches)

    def step() -> None:
        if model.closed_form:
            model.fit_closed_form(data.train.tokens, data.train.lengths)
            return
        rows = next(following)
        batch = gather_batch(data.train, rows)
        model.zero_grad()
        (-model.log_prob(batch.tokens, batch.lengths).sum() / len(rows)).backward()

    return step


if __name__ == "__main__":
    run_command(main)
