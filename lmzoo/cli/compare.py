"""Would the difference survive other seeds, and another test split?

    lmzoo compare runs/gru_ablation-captions
    lmzoo compare runs/gru_ablation-captions --reference "cut 4" --metric sentence

Every point against one reference, paired over the seeds both have and over the test sequences:
rank.py speaks of other seeds on this test split, this table of other splits too. Where the noise
comes from says what would help: more seeds, or more test data. frames/comparing.py says what a
row holds.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from lmzoo.analysis.comparing import comparison
from lmzoo.analysis.formatting import NONE, mean, number, p_value, probability, title
from lmzoo.analysis.load import Folder, load
from lmzoo.analysis.render import Report, Sheet, known_format, render
from lmzoo.errors import UserError


def report(folder: Folder, frame: pl.DataFrame) -> Report:
    """The comparison in words."""
    rows = frame.to_dicts()
    reference = next(row["label"] for row in rows if row["reference"])
    columns = {
        "rank": [_span(row) for row in rows],
        "point": [row["label"] for row in rows],
        "difference": [
            "reference" if row["reference"]
            else mean(row["difference"], row["difference_high"], "+.4f") for row in rows
        ],
        "p": [p_value(row["p"]) for row in rows],
        "better": [probability(row["better"]) for row in rows],
        "wins": [NONE if row["reference"] else _share(row) for row in rows],
        "noise of seeds": [number(row["from_seeds"], ".0%") for row in rows],
    }  # fmt: skip
    cells = list(zip(*columns.values(), strict=True))
    first = rows[0]
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: {first['metric']} loss in nats per token, test at epoch "
            f"{first['epoch']}; differences to {reference!r}, paired over seeds and test "
            "sequences, 95 % intervals; p: after Holm",
        ),
        sheets=(Sheet(title(first), tuple(columns), cells, frozenset({"point"})),),
        legend=(
            "rank: interval when seeds and test sequences are drawn anew",
            "better: probability that the point beats the reference; wins: its seeds that did",
            "noise of seeds: how much of the uncertainty more seeds would shrink; the rest is the "
            "test split's",
        ),
        frame=frame,
        json_columns=frozenset({"corpus"}),
    )


def _span(row: Mapping[str, Any]) -> str:
    """A rank interval."""
    low, high = row["rank_low"], row["rank_high"]
    return NONE if low is None else str(low) if low == high else f"{low}–{high}"


def _share(row: Mapping[str, Any]) -> str:
    return NONE if not row["paired"] else f"{row['win_rate'] * row['paired']:g} of {row['paired']}"


def main(
    study: Annotated[Path, typer.Argument(help="The folder of a study.")],
    reference: Annotated[
        str | None, typer.Option(help="Label of the point compared with; the study's if not given.")
    ] = None,
    format: Annotated[str, typer.Option(help="table, md, csv, json or latex.")] = "table",
    metric: Annotated[str, typer.Option(help="token or sentence.")] = "token",
) -> None:
    """Compare the points of a study over seeds and test sequences."""
    width = shutil.get_terminal_size((100, 40)).columns
    try:
        known_format(format)
        folder = load(study)
        frame = comparison(folder, metric=metric, reference=reference)
        text = render(report(folder, frame), format, width=width, colour=sys.stdout.isatty())
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(text)
