"""`budget`: what leaking the bag of a sequence's tokens could be worth on a corpus."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lmzoo.audit.leak_budget import leak_budget
from lmzoo.data.open import open_corpus, read_spec


def budget(
    corpus: Annotated[str, typer.Argument(help="captions, multi30k_en, cath, text:PATH, ...")] = "captions",
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:  # fmt: skip
    """What an oracle that knows each sequence's bag of tokens could gain on a corpus's test split."""
    data = open_corpus(read_spec(corpus), data_dir)
    found = leak_budget(data.test, data.task.vocab)
    if as_json:
        typer.echo(json.dumps({"corpus": data.name, **asdict(found), "gain": found.gain}))
        return
    console = Console()
    console.print(f"[bold]{data.name}[/], test split, nats per token", highlight=False)
    console.print(f"  entropy of the tokens' frequencies   {found.unigram:.3f}", highlight=False)
    console.print(
        f"  an oracle that knows the bag         {found.floor:.3f}  "
        f"({found.tokens_per_sequence:.1f} tokens a sequence)",
        highlight=False,
    )
    console.print(f"  so a leak of the bag is worth up to  {found.gain:.3f}", highlight=False)
    if data.floor:
        console.print(
            f"  the least any causal model can score {data.floor.token:.3f}", highlight=False
        )
