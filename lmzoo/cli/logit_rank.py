"""`lmzoo logit-rank`: the rank of the logits of rows or trained runs."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console

from lmzoo import zoo
from lmzoo.cli.common import AsJson, DataDir, ModelSettings, new_table
from lmzoo.cli.run_names import RUN_HELP, RUNS, Runs, find_trained, warn_untrained
from lmzoo.command_line import nest_settings, parse_settings
from lmzoo.data.open import open_corpus, parse_spec
from lmzoo.inspect.logit_rank import LogitRank, logit_rank
from lmzoo.train.trained import open_run


def show_logit_rank(
    names: Annotated[list[str], typer.Argument(metavar="RUN_OR_ROW...", help=f"{RUN_HELP}, or rows (their latest runs, or else their initial weights).")],
    sequences: Annotated[int, typer.Option(min=1, help="Number of test sequences, whose prefixes are the contexts.")] = 64,
    corpus: Annotated[str, typer.Option(help="Corpus for rows that are not trained.")] = "captions",
    data_dir: DataDir = None,
    fields: ModelSettings = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the initial weights of rows.")] = 0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show the rank of the matrix of log-probabilities, contexts by tokens, beside the width E.

    A softmax of E features has a rank of at most E.
    """
    settings = nest_settings(parse_settings(fields or []), "model")
    found: dict[str, tuple[int | None, LogitRank]] = {}
    untrained = []
    for name in names:
        folder = None if fields else find_trained(name, runs)
        if folder is not None:
            run = open_run(folder, data_dir)
            model, data = run.model, run.corpus
        else:
            data = open_corpus(parse_spec(corpus), data_dir)
            model = zoo.build(zoo.config(name, **settings), data.task, seed)
            untrained.append(name)
        part = data.test
        rank = logit_rank(model, part.tokens[:sequences], part.lengths[:sequences])
        found[name] = (getattr(model.config, "width", None), rank)
    warn_untrained(untrained)
    if as_json:
        rows = {n: {"width": e, **dataclasses.asdict(rank)} for n, (e, rank) in found.items()}
        typer.echo(json.dumps(rows))
        return
    table = new_table("row", right=("E", "rank", "effective", "99 %", "contexts", "V"))
    for name, (width, rank) in found.items():
        table.add_row(
            name, "" if width is None else str(width), str(rank.rank), f"{rank.effective:.1f}",
            str(rank.energy), str(rank.contexts), str(rank.vocab),
        )  # fmt: skip
    Console().print(table)
