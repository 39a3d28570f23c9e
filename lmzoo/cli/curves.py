"""How the points of a study learned, what their settings did, and what they cost.

    lmzoo curves runs/gru_ablation-captions
    lmzoo curves runs/gru_ablation-captions --format html --out curves

Learning curves with bands, a picture for each searched number (the learning rate, mostly), loss
against parameters and against time, and how many settings outlived each epoch of early stopping.
HTML files hold all they need and open without a network.
"""

from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from lmzoo.analysis.charts import cost_chart, learning_chart, setting_chart, survival_chart
from lmzoo.analysis.curve_data import (
    costs,
    is_log,
    learning,
    searched_numbers,
    settings,
    survival,
)
from lmzoo.analysis.load import Folder, load
from lmzoo.analysis.output_path import output
from lmzoo.analysis.ranking import ranking
from lmzoo.errors import UserError

FORMATS = ("png", "svg", "html")


def curves(folder: Folder, ranked: pl.DataFrame, metric: str = "token") -> dict[str, Any]:
    """File stem -> chart, for every curve that this study has the numbers for.

    Args:
        folder: the study, as `load` reads it.
        ranked: its ranking; gives the order of colours and the losses against costs.
        metric: `token` or `sentence`.
    """
    order = [label for label in ranked["label"] if label is not None]
    charts: dict[str, Any] = {}
    learned = learning(folder, metric)
    if learned.height:
        charts["learning"] = learning_chart(learned, order, metric)
    for name in searched_numbers(folder):
        tried = settings(folder, name, metric)
        if tried.height:
            charts[f"setting-{name}"] = setting_chart(tried, order, name, log=is_log(folder, name))
    cost = costs(folder, ranked)
    if cost.height:
        charts["parameters"] = cost_chart(cost, order, "parameters", "parameters")
        charts["time"] = cost_chart(cost, order, "seconds", "seconds of training, one run")
    left = survival(folder)
    if left.height:
        charts["survival"] = survival_chart(left, order)
    return charts


def main(
    study: Annotated[Path, typer.Argument(help="The folder of a study.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the pictures go; STUDY/.curves if not given.")
    ] = None,
    format: Annotated[str, typer.Option(help="png, svg or html.")] = "png",
    metric: Annotated[str, typer.Option(help="token or sentence.")] = "token",
) -> None:
    """Draw the curves of a study, one file each."""
    try:
        if format not in FORMATS:
            raise UserError(f"no format {format!r}; known: {', '.join(FORMATS)}")
        place = output(study, out, ".curves")
        folder = load(study)
        ranked = ranking(folder.runs, folder.events, folder.study, metric=metric)
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    place.mkdir(parents=True, exist_ok=True)
    for stem, chart in curves(folder, ranked, metric).items():
        path = place / f"{stem}.{format}"
        more = {"png": {"scale_factor": 2}, "html": {"inline": True}}.get(format, {})
        chart.save(str(path), format=format, **more)
        typer.echo(path)
