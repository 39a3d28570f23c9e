"""`lmzoo judge`: verdicts on results of other programs, or on two commands."""

import functools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields
from lmzoo.base.streams import echo, said
from lmzoo.lab.cli.tables import AsJson, Format, print_report

# `lmzoo plan` has these, too.
By = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column that says which variant was trained; repeatable.")]  # fmt: skip
MetricName = Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Column to judge.")]  # fmt: skip
Seed = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the seed. Default: seed, if there is one.")]  # fmt: skip
Variant = Annotated[str | None, typer.Option(metavar="VARIANT", help="Variant to compare with. Default: the first one.")]  # fmt: skip
Paired = Annotated[bool | None, typer.Option("--paired/--unpaired", help="Whether to compare runs of the same seed with each other. Default: as the results show.")]  # fmt: skip
Step = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of steps; the last row of each run counts.")]  # fmt: skip
Parse = Annotated[str | None, typer.Option(metavar="REGEX", help="Read columns from the name of a run: '(?P<variant>.+)-s(?P<seed>[0-9]+)'.")]  # fmt: skip
Higher = Annotated[bool | None, typer.Option("--higher-is-better/--lower-is-better", help="Whether higher or lower values are better. Default: what the results, or the name of the metric, say.")]  # fmt: skip
Best = Annotated[str | None, typer.Option(metavar="[COLUMN]", help="Count the row of each run at which this column (default: the metric) is best, not the last row.")]  # fmt: skip
Finished = Annotated[list[str] | None, typer.Option(metavar="STATE", help="Another state that means finished; repeatable.")]  # fmt: skip


def judge(
    results: Annotated[Path | None, typer.Argument(metavar="RESULTS", help="CSV, JSON lines or Parquet, one row per run; a storage of Optuna or MLflow; a folder of MLflow, TensorBoard, Ray Tune, Lightning or Hugging Face; - is stdin.")] = None,
    by: By = None,
    metric: MetricName = None,
    seed: Seed = None,
    reference: Variant = None,
    margin: Annotated[float, typer.Option(help="Difference below which a variant is negligible, in the metric's unit.")] = 0.0,
    higher_is_better: Higher = None,
    paired: Paired = None,
    step: Step = None,
    parse: Parse = None,
    best: Best = None,
    finished: Finished = None,
    base: Annotated[str | None, typer.Option(metavar="COMMAND", help="Command of the baseline, with {seed}: 'python train.py --seed {seed}'.")] = None,
    candidate: Annotated[str | None, typer.Option(metavar="COMMAND", help="Command of the candidate.")] = None,
    pattern: Annotated[str | None, typer.Option(metavar="REGEX", help="Find the metric in what the commands print: 'val_bpb: ([0-9.]+)'. Default: --metric in JSON lines, or the last line.")] = None,
    max_seeds: Annotated[int, typer.Option(help="Largest number of seeds of each command.")] = 24,
    budget: Annotated[float, typer.Option(metavar="MINUTES", help="Start no run after this time.")] = math.inf,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the runs of the commands; a stopped judge continues from it.")] = Path("judge-runs"),
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the differences: .pdf, .svg or .png, 7.1in wide.")] = None,
    format: Format = "table",
    as_json: AsJson = False,
):  # fmt: skip
    """Rank the variants in a table of results, or run two commands and say whether to keep the candidate.

    Example: lmzoo judge results.csv --by variant --seed seed --metric loss --margin 0.01

    With --base and --candidate, the exit code is 0 (keep), 1 (discard) or 3 (undecided). For a
    table it is always 0.
    """
    if as_json:
        format = "json"
    if base is not None or candidate is not None:
        of_tables = {
            "--by": by, "--seed": seed, "--reference": reference, "--step": step,
            "--paired": paired is not None, "--best": best is not None, "--parse": parse,
            "--finished": finished, "--figure": figure,
        }  # fmt: skip
        _refuse(of_tables, "a table of results; leave it out")
        if results is not None:
            raise UserError(f"give a table of results ({results}) or commands, not both")
        code = _judge_commands(
            (base, candidate), metric, pattern, margin, max_seeds, budget, out,
            higher_is_better=higher_is_better, format=format,
        )  # fmt: skip
        raise typer.Exit(code)
    of_commands = {
        "--pattern": pattern,
        "--max-seeds": max_seeds != 24,
        "--budget": budget < math.inf,
    }
    _refuse(of_commands, "commands; give --base and --candidate")
    from lmzoo.lab.analysis.render import check_format
    from lmzoo.lab.judging.account import Question
    from lmzoo.lab.judging.sources import read_results
    from lmzoo.lab.judging.verdicts import judgement

    if results is None:
        raise UserError("nothing to judge; give a file of results")
    if not by or metric is None:
        names = read_results(results).frame.columns
        columns = ", ".join(name for name in names if "\0" not in name)
        missing = "--by COLUMN"
        if by:
            missing = "--metric NAME"
        raise UserError(f"judge needs {missing}; columns of {results}: {columns}")
    check_format(format)
    if best == "":
        best = metric
    question = Question(
        by=by, metric=metric, seed=seed, reference=reference, margin=margin,
        higher_is_better=higher_is_better, paired=paired,
        step=step, parse=parse, finished=finished or (), best=best,
    )  # fmt: skip
    with said(f"reading {results}"):
        report = judgement(results, question)
    print_report(report, format)
    if figure is not None:
        _draw(report, figure)


def _draw(report: Any, figure: Path):
    from lmzoo.lab.analysis.report.figure import write_forest
    from lmzoo.lab.judging.verdicts import as_ranking

    caption = write_forest(report, as_ranking(report.frame), figure, "7.1in")
    echo(f"{figure}: {caption}", err=True)


def _refuse(options: Mapping[str, object], of: str):
    """Raise a `UserError` if one of the options is given, which belong to something else."""
    for name, given in options.items():
        if given:
            raise UserError(f"{name} is for {of}")


def _judge_commands(
    arms: tuple[str | None, str | None], metric: str | None, pattern: str | None,
    margin: float, max_seeds: int, budget: float, out: Path, *, higher_is_better: bool | None, format: str,
) -> int:  # fmt: skip
    """Run two commands, print the answer and return the exit code."""
    import re

    from lmzoo.lab.judging.commands import CODES, Arm, Metric, Results, judge_commands
    from lmzoo.lab.judging.directions import direction_of

    if format not in ("table", "json", "github"):
        raise UserError(f"no format {format!r} of two commands; known: table, json, github")
    base, candidate = arms
    if base is None or candidate is None:
        raise UserError("two commands are compared; give --base and --candidate")
    if pattern is not None:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise UserError(f"--pattern {pattern!r} is no regular expression: {error}") from None
        if groups != 1:
            raise UserError(
                f"--pattern {pattern!r} has {groups} groups; put () around the number only"
            )
    if higher_is_better is None:
        higher_is_better = direction_of(metric or pattern or "")
    counted = Metric(metric, pattern, higher_is_better)
    say = functools.partial(echo, err=True)
    here = Path.cwd()
    answer = judge_commands(
        Arm("base", base, here, counted),
        Arm("candidate", candidate, here, counted),
        Results(out, say),
        margin=margin,
        max_seeds=max_seeds,
        minutes=budget,
        say=say,
    )
    text = "; ".join(_parts(answer))
    if format == "json":
        text = json.dumps(answer)
    elif format == "github":
        text = _markdown(answer)
    echo(text)
    return CODES[answer["decision"]]


def _parts(answer: Fields) -> Iterator[str]:
    """Yield the parts of the sentence that says an answer, the decision first."""
    from lmzoo.lab.analysis.verdict_lines import shown_verdict

    verdict = shown_verdict(answer["verdict"], confirmed=answer["confirmed"])
    text = f"{answer['decision']}: "
    if verdict != answer["decision"]:
        text += f"{verdict}: "
    if answer["difference"] is None:
        text += "no difference is known"
    else:
        text += f"difference {answer['difference']:+.4g}"
    if answer["low"] is not None:
        text += f" ({answer['low']:.4g} to {answer['high']:.4g})"
    if answer["p"] is not None:
        text += f", p {answer['p']:.3g}"
    yield f"{text}, {min(answer['seeds'])} pairs of seeds"
    if any(answer["diverged"]):
        base, candidate = answer["diverged"]
        yield f"diverged: {base} of base, {candidate} of candidate"
    if answer["out_of_time"]:
        yield "the time is over"
    if answer["seeds_needed"] is not None:
        yield f"about {answer['seeds_needed']} more seeds would decide it"


def _markdown(answer: Fields) -> str:
    """Return an answer as the summary of a pull request, with the account of its runs."""
    runs = sum(answer["seeds"])
    diverged = sum(answer["diverged"])
    parts = list(_parts(answer))
    parts.append(f"{runs} runs read: {runs - diverged} counted, {diverged} diverged")
    lines = [f"### {parts[0]}", ""]
    for part in parts[1:]:
        lines.append(f"- {part}")
    return "\n".join(lines)
