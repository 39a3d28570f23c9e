"""The subcommands that read a study's records: tables, charts and the page.

Each function imports what it needs, so a table is not delayed by the chart libraries.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmzoo.base.errors import UserError, writing
from lmzoo.base.streams import echo
from lmzoo.lab.cli.options import Metric
from lmzoo.lab.store.studies import find_study

if TYPE_CHECKING:
    from lmzoo.lab.analysis.text.render import Report

Study = Annotated[Path, typer.Argument(callback=lambda path: find_study(str(path)), metavar="STUDY", help="A study: its folder, a file of records, or its name (or the beginning) in runs/.")]  # fmt: skip
Format = Annotated[str, typer.Option(help="table, md, csv, json or latex.")]
Unit = Annotated[
    str,
    typer.Option(
        "--unit",
        "--metric",
        help="token or sentence: nats per token, averaged over tokens or sentences; bpc, bpb: bits "
        "per character or byte; ppl, wppl: perplexity per token or word (rank only).",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the corpus's files; for bpc, bpb and wppl of records without sizes."
    ),
]


def _measured_sizes(study: Path, unit: str, data_dir: Path | None) -> Any:
    """Return the sizes of the study's texts from their files, which needs torch; None: not asked."""
    if data_dir is None or unit not in ("bpc", "bpb", "wppl"):
        return None
    from lmzoo.lab.trainables.door import open_door

    return open_door().measured_sizes(study, unit, data_dir)


def rank(
    study: Study,
    format: Format = "table",
    unit: Unit = "token",
    at: Annotated[
        int | None,
        typer.Option(help="Rank by the validation loss at this epoch instead of the test loss."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help="Difference in nats below which a point is negligible. Default: the study's."
        ),
    ] = None,
    data_dir: DataDir = None,
    board: Annotated[
        bool, typer.Option("--tensorboard", help="Also write the verdicts for TensorBoard.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print all columns, notes and chosen settings.")
    ] = False,
) -> None:
    """Rank the points of a study: means, intervals, paired differences, verdicts."""
    from lmzoo.lab.analysis.ranking_frame import rank as ranked

    def read() -> "Report":
        measured = _measured_sizes(study, unit, data_dir)
        ranking = ranked(study, unit=unit, at=at, margin=margin, measured=measured)
        return ranking.brief if format == "table" and not explain else ranking.report

    report = _show(format, read)
    if board and study.is_dir():
        from lmzoo.lab.analysis.tables.verdict_board import write_verdicts
        from lmzoo.lab.store.records import BOARD

        with writing(study / BOARD / "verdict"):
            write_verdicts(study, report.frame)


def compare(
    study: Study,
    other: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="A second study: write the page of both, as `lmzoo report A B` does.")] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Label of the reference point. Default: the study's reference."),
    ] = None,
    format: Format = "table",
    unit: Unit = "token",
    data_dir: DataDir = None,
) -> None:  # fmt: skip
    """Compare every point with one reference, over seeds and test sequences; or two studies.

    `rank` considers other seeds on the same test split; this table considers other test splits too.
    """
    from lmzoo.lab.analysis.tables.comparison import study_comparison

    if other is not None:
        from lmzoo.lab.cli.report import report

        if reference is not None or format != "table":
            raise UserError("--reference and --format belong to the table of one study; leave them")
        report(str(study), other, metric=unit)
        return

    _show(
        format,
        lambda: study_comparison(
            study, unit=unit, reference=reference, measured=_measured_sizes(study, unit, data_dir)
        ),
    )


def curves(
    study: Study,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the charts. Default: STUDY/.curves.")
    ] = None,
    format: Annotated[str, typer.Option(help="png, svg or html.")] = "png",
    metric: Metric = "token",
) -> None:
    """Draw the curves of a study, one file each.

    They show learning curves, tuned settings, costs, and how many settings trained each epoch.
    """
    from lmzoo.lab.analysis.charts.curve_charts import SAVE_OPTIONS, curve_charts, save_chart
    from lmzoo.lab.analysis.records.load import load_study
    from lmzoo.lab.analysis.tables.ranking import rank_points
    from lmzoo.lab.analysis.text.render import output_path

    if format not in SAVE_OPTIONS:
        raise UserError(f"no format {format!r}; known: {', '.join(SAVE_OPTIONS)}")
    target = output_path(study, out, ".curves")
    folder = load_study(study)
    ranked = rank_points(folder.runs, folder.events, folder.study, metric=metric)
    for stem, chart in curve_charts(folder, ranked, metric).items():
        with writing(target / stem):
            path = save_chart(chart, target, stem, format)
        echo(path)


def epistasis(
    study: Study,
    format: Format = "table",
    unit: Unit = "token",
    figure: Annotated[
        Path | None, typer.Option(help="Also write heat maps to this file: .png, .svg or .html.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Estimate the effect of each switch of a cell, and the interaction of each pair."""
    from lmzoo.lab.analysis.tables.effects import study_effects

    _show(
        format,
        lambda: study_effects(
            study, unit=unit, figure=figure, measured=_measured_sizes(study, unit, data_dir)
        ),
    )


def scaling(
    study: Study,
    by: Annotated[str, typer.Option(help="parameters, state or compute.")] = "parameters",
    format: Format = "table",
    metric: Metric = "token",
) -> None:
    """Fit the loss against the size of the models, one curve per architecture; compare at equal size.

    A curve has the points whose labels are equal up to the last word: `LSTM E=8`, `LSTM E=16`.
    """
    from lmzoo.lab.analysis.tables.scaling import study_scaling

    _show(format, lambda: study_scaling(study, by=by, metric=metric))


def tuning(study: Study, format: Format = "table") -> None:
    """Show the loss of each point against the number of tuning runs, and whether the order changes.

    A curve that still falls asks for more `--samples`.
    """
    from lmzoo.lab.analysis.tables.tuning import study_tuning

    _show(format, lambda: study_tuning(study))


def importance(
    study: Study,
    format: Format = "table",
    point: Annotated[str | None, typer.Option(help="Label of the only point to include.")] = None,
    at: Annotated[
        int | None,
        typer.Option(
            help="Compare losses up to this epoch. Default: the last that every run has reached."
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Also write an Optuna study to this file: .db or .journal.")
    ] = None,
) -> None:
    """Estimate the importance of the searched fields by fANOVA over the tune runs.

    `optuna-dashboard sqlite:///FILE.db` opens an exported study.
    """
    from lmzoo.lab.analysis.tables.importance import study_importance

    _show(format, lambda: study_importance(study, point=point, at=at, export=export))


def published(
    studies: Annotated[list[Path] | None, typer.Argument(help="Folders of studies.")] = None,
    format: Format = "table",
    table: Annotated[
        str | None, typer.Option(help="Name of the only table to show, as multi30k_word.")
    ] = None,
    any_corpus: Annotated[
        bool,
        typer.Option(
            "--any-corpus", help="Include runs on other data; only the order of rows is comparable."
        ),
    ] = False,
) -> None:
    """Show the published tables of source document S0 next to our runs of their rows.

    The config of a run decides to which row it belongs. Folders without a study are left out.
    """
    from lmzoo.lab.analysis.published.published_table import published_comparison

    paths = list(_study_folders(studies or []))
    _show(
        format,
        lambda: published_comparison(paths, table=table, any_corpus=any_corpus),
        default_width=120,
        min_width=100,
    )


def _show(
    format: str, read: "Callable[[], Report]", *, default_width: int = 100, min_width: int = 0
) -> "Report":
    """Print and return the report of `read`; an unknown format is refused before it is called."""
    from lmzoo.lab.analysis.text.render import check_format, render

    check_format(format)
    width = max(shutil.get_terminal_size((default_width, 40)).columns, min_width)
    report = read()
    terminal = sys.stdout.isatty()
    echo(render(report, format, width=width, colour=terminal, complete=not terminal))
    return report


def _study_folders(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders of studies, so that `runs/*` may match other files too.

    If no path is a study, all are returned, and reading the first raises an error.
    """
    from lmzoo.lab.store.records import STUDY

    others = [
        path
        for path in paths
        if path.exists() and path.suffix != ".parquet" and not (path / STUDY).exists()
    ]
    for path in paths:
        if path in others and len(others) < len(paths):
            echo(f"left out, no {STUDY}: {path}", err=True)
        else:
            yield path
