"""`lmzoo judge`: verdicts on results that other programs produced."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.cli.common import AsJson
from lmzoo.errors import UserError
from lmzoo.streams import echo


def judge(
    results: Annotated[Path | None, typer.Argument(metavar="RESULTS", help="CSV, JSON lines or Parquet, one row per run; a storage of Optuna or MLflow; a folder of MLflow or TensorBoard.")] = None,
    by: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column that says which variant was trained; repeatable.")] = None,
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="Column to judge.")] = None,
    seed: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the seed. Default: seed, if there is one.")] = None,
    reference: Annotated[str | None, typer.Option(metavar="VARIANT", help="Variant to compare with. Default: the first one.")] = None,
    margin: Annotated[float, typer.Option(help="Difference below which a variant is negligible, in the metric's unit.")] = 0.0,
    higher_is_better: Annotated[bool, typer.Option("--higher-is-better", help="For accuracies and scores.")] = False,
    within: Annotated[str | None, typer.Option(metavar="COLUMN", help="Compare within each value of this column.")] = None,
    successive: Annotated[bool, typer.Option("--successive", help="Compare each variant with the one before it.")] = False,
    paired: Annotated[bool | None, typer.Option("--paired/--unpaired", help="Whether equal seeds belong together. Default: if they are shared.")] = None,
    step: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of steps; the last row of each run counts.")] = None,
    parse: Annotated[str | None, typer.Option(metavar="REGEX", help="Make columns of the run's name: '(?P<variant>.+)-s(?P<seed>[0-9]+)'.")] = None,
    format: Annotated[str, typer.Option(help="table, md, csv, json or latex.")] = "table",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Rank the variants in a table of results, with verdicts on their differences.

    Example: lmzoo judge results.csv --by variant --seed seed --metric loss --margin 0.01
    """
    from lmzoo.analysis.text.render import check_format, render
    from lmzoo.judging.verdicts import judgement

    if results is None:
        raise UserError("nothing to judge; give a file of results")
    if not by or metric is None:
        missing = "--metric NAME" if by else "--by COLUMN"
        raise UserError(f"judge needs {missing}; {_columns(results)}")
    format = "json" if as_json else format
    check_format(format)
    report = judgement(
        results, by=by, metric=metric, seed=seed, reference=reference, margin=margin,
        higher_is_better=higher_is_better, within=within, successive=successive, paired=paired,
        step=step, parse=parse,
    )  # fmt: skip
    width, terminal = shutil.get_terminal_size((100, 40)).columns, sys.stdout.isatty()
    echo(render(report, format, width=width, colour=terminal, complete=not terminal))


def _columns(results: Path) -> str:
    from lmzoo.judging.results import read_results

    return f"columns of {results}: {', '.join(read_results(results).columns)}"
