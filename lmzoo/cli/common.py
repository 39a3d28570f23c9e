"""Options, table style and text that several subcommands share.

Measure the test text of a study's corpora, for records that lack its size.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lmzoo.errors import UserError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the corpus files. Default: download them.")
]
Metric = Annotated[str, typer.Option("--metric", "--unit", help="token or sentence.")]
ModelSettings = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the row's model, such as model.width=64; repeatable.")]  # fmt: skip


def new_table(*left: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with left-aligned and then right-aligned columns."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def describe_cuts(model_config: Any) -> str:
    """Return the cuts of a model's cell, such as "cut carry (6)", or '' without cuts."""
    from lmzoo.cells.cuts import numbered  # imports torch

    cuts = getattr(getattr(model_config, "cell", None), "cuts", ())
    return f"cut {numbered(cuts)}" if cuts else ""


if TYPE_CHECKING:
    from lmzoo.analysis.records.units import TextSizes


def measured_sizes(study: Path, unit: str, data_dir: Path | None) -> "TextSizes | None":
    """Return the sizes of the study's corpora from their files; None if they are not asked for.

    Args:
        study: the study's folder.
        unit: the unit of the table; only `bpc`, `bpb` and `wppl` need sizes.
        data_dir: folder of the corpus's files; None measures nothing.

    Raises:
        UserError: A corpus cannot be opened, or it is not the one of the runs.
    """
    if data_dir is None or unit not in ("bpc", "bpb", "wppl"):
        return None
    import json

    from lmzoo.analysis.records.load import load_study
    from lmzoo.data.corpus import open_corpus
    from lmzoo.train.trained import found_from

    sizes = {}
    runs = load_study(study).runs.select("corpus", "fingerprint").unique().collect()
    for spec, fingerprint in runs.iter_rows():
        corpus = open_corpus(found_from(study, json.loads(spec)), data_dir)
        if corpus.fingerprint != fingerprint or corpus.test_size is None:
            raise UserError(
                f"corpus {corpus.name} in {data_dir} is not the one of the runs, or has unknown "
                "words of unknown length; use --unit token"
            )
        sizes[fingerprint] = (corpus.test.num_scored, *corpus.test_size)
    return sizes
