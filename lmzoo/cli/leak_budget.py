"""`lmzoo budget`: the most that a leak of the bag of tokens is worth on a corpus."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from lmzoo.audit.leak_budget import leak_budget
from lmzoo.cli.common import AsJson, DataDir
from lmzoo.data.open import open_corpus, parse_spec


def show_budget(
    corpus: Annotated[str, typer.Argument(help="captions, multi30k_en, cath, text:PATH, ...")] = "captions",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show what an oracle that knows each sequence's bag of tokens gains on the test split."""
    data = open_corpus(parse_spec(corpus), data_dir)
    budget = leak_budget(data.test, data.task.vocab)
    if as_json:
        typer.echo(json.dumps({"corpus": data.name, **asdict(budget), "gain": budget.gain}))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{data.name}[/], test split, nats per token")
    console.print(f"  entropy of the token frequencies        {budget.unigram:.3f}")
    console.print(
        f"  loss of an oracle that knows the bag    {budget.floor:.3f}  "
        f"({budget.tokens_per_sequence:.1f} tokens per sequence)"
    )
    console.print(f"  maximal gain by a leak of the bag       {budget.gain:.3f}")
    if data.floor:
        console.print(f"  entropy floor of causal models          {data.floor.token:.3f}")
