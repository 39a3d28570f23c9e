"""`lmzoo plan`: seeds and hours before a study."""

from pathlib import Path
from typing import Annotated

import typer

from lmzoo.base.errors import UserError
from lmzoo.base.streams import said
from lmzoo.lab.cli.judge import (
    Best,
    By,
    Finished,
    Higher,
    MetricName,
    Paired,
    Parse,
    Seed,
    Step,
    Variant,
)
from lmzoo.lab.cli.tables import AsJson, Format, print_report


def plan(
    pilot: Annotated[Path, typer.Argument(metavar="PILOT", help="A study: its folder or its file of records; or a table of results, as for `judge`.")],
    effect: Annotated[float | None, typer.Option(help="Difference to show, in the metric's unit. Default: --margin.")] = None,
    power: Annotated[float, typer.Option(help="Probability that it is shown, if it is there.")] = 0.8,
    contrasts: Annotated[int | None, typer.Option(help="Number of contrasts of the new study. Default: those of the pilot.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes of one run, for a table of results.")] = None,
    by: By = None,
    metric: MetricName = None,
    seed: Seed = None,
    reference: Variant = None,
    margin: Annotated[float | None, typer.Option(help="As `judge` has it: the difference to show, unless --effect is given.")] = None,
    paired: Paired = None,
    step: Step = None,
    parse: Parse = None,
    best: Best = None,
    higher_is_better: Higher = None,
    finished: Finished = None,
    format: Format = "table",
    as_json: AsJson = False,
):  # fmt: skip
    """Plan a study: how many seeds show a difference of a given size, and what they cost.

    Example: lmzoo plan docs/results/records/gru_ablation-captions.parquet --effect 0.02
    """
    from lmzoo.lab.judging.plan import plan_report

    # A line of `lmzoo judge` with the other command in it should work, too.
    wanted = effect or margin
    if wanted is None:
        raise UserError("give the difference that the study should show, as --effect 0.02")
    if best == "":
        best = metric
    with said(f"reading {pilot}"):
        report = plan_report(
            pilot, wanted, power, contrasts=contrasts, minutes=minutes, by=by,
            metric=metric, seed=seed, reference=reference, paired=paired, step=step, parse=parse,
            finished=finished or (), best=best, higher_is_better=higher_is_better,
        )  # fmt: skip
    if as_json:
        format = "json"
    print_report(report, format)
