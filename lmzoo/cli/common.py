"""Options and text that the commands on models share, and the opening of a trained run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lmzoo.base.streams import echo
from lmzoo.cells.cuts import numbered
from lmzoo.data.corpus import Corpus, describe_data
from lmzoo.train.trained import TrainedRun, load_run

DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the corpus files. Default: download them.")
]
ModelSettings = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the row's model, such as model.width=64; repeatable.")]  # fmt: skip


def describe_cuts(cell: Any) -> str:
    """Return the cuts of a cell's config, such as "cut carry (6)", or '' without cuts."""
    texts = []
    cuts = getattr(cell, "cuts", ())
    if cuts:
        texts.append(f"cut {numbered(cuts)}")
    for number, layer in enumerate(getattr(cell, "layers", ()), 1):
        of_layer = describe_cuts(layer)
        if of_layer:
            texts.append(f"layer {number}: {of_layer}")
    return "; ".join(texts)


def open_run(folder: Path, data_dir: Path | None, said: set[str] | None = None) -> TrainedRun:
    """Load a trained run, see `load_run`, and say what its text lost, see `say_facts`."""
    trained = load_run(folder, data_dir)
    say_facts(trained.corpus, said)
    return trained


def say_facts(corpus: Corpus, said: set[str] | None):
    """Print on stderr what reading the user's text gave and lost; nothing for other corpora.

    `said` are the fingerprints of texts that need no second block.
    """
    if said is None:
        said = set()
    if corpus.facts is None or corpus.fingerprint in said:
        return
    # Several runs of one text need one block.
    said.add(corpus.fingerprint)
    echo(f"{corpus.name} {corpus.source}", err=True)
    for line in describe_data(corpus):
        echo(line, err=True)
