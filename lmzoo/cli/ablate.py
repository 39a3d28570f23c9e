"""What parts of cells are worth: `lmzoo ablate`, `lmzoo shrink`; `lmzoo export` prints a cell."""

from pathlib import Path
from typing import Annotated

import typer

from lmzoo import zoo
from lmzoo.ablation import ablate as ablated
from lmzoo.base.command_line import nest_settings, parse_settings
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import changed_search
from lmzoo.base.streams import echo
from lmzoo.cli.catalogue import TASK
from lmzoo.cli.common import DataDir, ModelSettings
from lmzoo.lab.cli.tables import AsJson, Format, print_report
from lmzoo.lab.statistics.compared import MARGIN
from lmzoo.lab.study.study import SEARCHED

TRAINED = "A study (its reference), STUDY:POINT, or the folder of a run."


def ablate(
    trained: Annotated[str, typer.Argument(metavar="RUN|STUDY", help=TRAINED)],
    pairs: Annotated[bool, typer.Option("--pairs", help="Cut every pair of parts, too.")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps for which cut models are trained on. Default: 5 % of those of the training.")] = None,
    data_dir: DataDir = None,
    format: Format = "table",
    as_json: AsJson = False,
):  # fmt: skip
    """Cut each part of trained models, and print what it costs.

    A part is zero, at its mean over the training split, as on another sequence, or cut and trained on for some steps. Repeat the command to continue; `lmzoo rank STUDY --after-training` compares with models that were trained without the part.
    """
    # Late: these imports take long, and --help needs none.
    from lmzoo.lab.analysis.render import check_format

    form = format
    if as_json:
        form = "json"
    # Before the work.
    check_format(form)
    report = ablated(trained, pairs=pairs, steps=steps, data_dir=data_dir).report
    assert report is not None, "an ablation has a report"
    print_report(report, form)


def shrink(
    row: Annotated[str, typer.Argument(metavar="ROW", help="A row of the zoo whose parts have named cuts.")],
    corpus: Annotated[str, typer.Option(help="captions, multi30k_en, cath, text:PATH, ...")] = "captions",
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of each point.")] = 8,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = 10,
    samples: Annotated[int, typer.Option(min=1, help="Settings tried for each point.")] = 5,
    margin: Annotated[float, typer.Option(help="What a good cut costs at most, in nats.")] = MARGIN,
    fields: ModelSettings = None,
    search_space: Annotated[list[str] | None, typer.Option(metavar="FIELD=LOW:HIGH", help="Search a field, as --search-space of a sweep; repeatable.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the studies, one for each step.")] = Path("runs"),
    data_dir: DataDir = None,
    as_json: AsJson = False,
):  # fmt: skip
    """Cut parts of a row as long as it stays as good as the whole: one error for the whole walk.

    Each step is a study. Repeat the command to continue an interrupted walk.
    """
    from lmzoo.shrinking import shrink as shrunk
    from lmzoo.shrinking import walk_report

    walk = shrunk(
        row,
        corpus,
        fields=parse_settings(fields or []),
        search=changed_search(SEARCHED, search_space or []),
        out=out,
        data_dir=data_dir,
        seeds=seeds,
        margin=margin,
        epochs=epochs,
        samples=samples,
    )
    if as_json:
        echo(walk.write_json())
        return
    print_report(walk_report(walk, row, margin), "table")


def export(
    row: Annotated[str, typer.Argument(metavar="ROW", help="A row of the zoo with a recurrent cell.")],
    fields: ModelSettings = None,
):  # fmt: skip
    """Print the cell of a row as a module of plain torch: one step, and the loop over it."""
    from lmzoo.cells.base import Cell
    from lmzoo.inspect.export import cell_source

    settings = nest_settings(parse_settings(fields or []), "model")
    model = zoo.build(zoo.config(row, **settings), TASK)
    cells = [part for part in model.modules() if isinstance(part, Cell)]
    if not cells:
        raise UserError(f"{row} has no recurrent cell; lmzoo list names other rows")
    echo(cell_source(cells[0]))
