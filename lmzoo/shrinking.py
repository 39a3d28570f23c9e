"""The smallest cell that is as good as the whole one: a walk down the lattice of its cuts.

    step    a study compares the whole cell with the cell of the step before, once more, and with
            every further cut of it
    cut     the point with the lowest loss among those that are good
    end     no point is good, or new seeds do not repeat the cut of the step before: it is undone

A point is good if it is shown to lose less than the margin Δ: a one-sided test of δ ≥ Δ, as the
walk does not mind a point that is better. On a task that a run may fail, a good point does not fail
more often than the whole cell.

**One error for the walk.** Each point is compared with the whole cell, so that small losses do not
add up unseen. With n cuts the walk compares at most N = n (n + 1) / 2 points, and each test may be
wrong with probability α / N, α = 5 %. So no cell of the path is worse by more than the margin, with
95 %, whatever was chosen on the way. Few seeds do not show that losses have a long tail, and then
the test is wrong more often (`benchmarks/walks.py`). Each step has seeds of its own, also for the
whole cell. So a cut stays only if the seeds of the next step show it, too, with an error of α.

A walk that is interrupted continues: the steps are studies. With more seeds it looks at a step
again, and spends at most a tenth of its error on that, as a study does.
"""

import itertools
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo import zoo
from lmzoo.api import run_study
from lmzoo.base.arguments import called
from lmzoo.base.command_line import nest_settings
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.analysis.formatting import format_mean
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.render import Report, TextTable
from lmzoo.lab.analysis.verdict_lines import shown_verdict
from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    ERROR,
    MARGIN,
    NEGLIGIBLE,
    UNDECIDED,
)
from lmzoo.lab.study.study import Point, Study
from lmzoo.train.cut_weights import Variant, variants
from lmzoo.trainables.resolve import corpus_config, store_folder

WHOLE = "whole"
NOT_WORSE = "not worse"
"""Good, and not known whether it is negligible or better."""
AGAIN = {True: ", repeated", False: ", not repeated"}
COLUMNS = ("label", "verdict", "difference", "difference_low", "difference_high", "parameters")


@called
def shrink(
    row: str,
    corpus: str | Path = "captions",
    *,
    fields: Fields | None = None,
    out: Path | str = "runs",
    data_dir: Path | None = None,
    workers: int = 0,
    seeds: int = 8,
    margin: float = MARGIN,
    **options: Any,
) -> pl.DataFrame:
    """Cut a row's model as long as it stays as good as the whole one, and return all points.

    Args:
        row: Name or alias of a row.
        corpus: Name of a corpus, or `text:PATH`.
        fields: Fields of all models and recipes, as those of a `Study`: `{"model.width": 64}`.
        out: Folder of the studies, one for each step.
        data_dir: Folder of the corpus files; None downloads them.
        workers: Maximum number of workers; 0: as many as fit.
        seeds: Seeds of each point.
        margin: Difference in nats that is negligible.
        **options: Further fields of the studies, such as `epochs=20`.

    Returns:
        One row a point: `step`, `label`, `verdict`, `difference` to the whole model with its
        ends, `parameters`, whether it is at most the margin worse (`good`), whether it fails with
        more of its seeds (`fails_more`), whether the walk took it (`taken`), and of a cell that
        new seeds try again, whether it is good again (`repeated`).

    Raises:
        UserError: A name is unknown, the row has no cuts, or runs failed.
    """
    name = zoo.row(row).name
    whole = zoo.config(name, **nest_settings(fields or {}, "model"))
    count = len(_single(whole))
    if not count:
        raise UserError(f"{name} has no named cuts; lmzoo describe {name} lists its parts")
    # All comparisons that a walk can make share α.
    error = ERROR / (count * (count + 1) / 2)
    # The walk begins with nothing cut.
    taken = Variant(WHOLE, whole)
    steps = []
    for step in itertools.count(1):
        cuts = _single(taken.config)
        points = [Point(WHOLE, name)]
        if step > 1:
            points.append(Point(taken.label, name, taken.fields))
        for cut in cuts:
            points.append(Point(cut.label, name, cut.fields))
        study = Study(
            name=f"shrink-{name}-{step}",
            question=f"Which cut of {name} ({taken.label}) is negligible?",
            points=tuple(points),
            corpus=str(corpus),
            fields=fields or {},
            seed=step,
            seeds=seeds,
            margin=margin,
            **options,
        )
        run_study(study, out=out, data_dir=data_dir, workers=workers)
        config = corpus_config(study, study.fields)
        text = open_corpus(config, data_dir).fingerprint  # a part of the folder's name
        ranked = _verdicts(store_folder(Path(out), study.name, config, text), error)
        is_again = pl.col("label") == taken.label
        repeated = ranked.filter(is_again)["repeats"].to_list()
        best = []
        if repeated != [False]:
            # The cheapest one: the walk is greedy.
            new = ranked.filter("good", ~is_again).sort("difference")
            best = new.head(1)["label"].to_list()
        steps.append(
            ranked.with_columns(
                step=pl.lit(step),
                taken=pl.col("label").is_in(best),
                repeated=pl.when(is_again).then("repeats"),
            )
        )
        if not best:
            break
        taken = next(cut for cut in cuts if cut.label in best)
    return pl.concat(steps).select(
        ("step",) + COLUMNS + ("good", "fails_more", "taken", "repeated")
    )


def _single(config: Any) -> list[Variant]:
    # The others are texts: why a cut is refused.
    return [cut for cut in variants(config) if isinstance(cut, Variant)]


def _verdicts(folder: Path, error: float) -> pl.DataFrame:
    """Return the points of a step, each judged with the error of one comparison of the walk."""
    content = load_study(folder)
    # The study has spent 5 % on its looks. The walk has less to spend, in the same shares.
    looks = [
        [seeds, error * spent / ERROR, reference]
        for seeds, spent, reference in content.study["looks"]
    ]
    ranked = rank_points(content.runs, content.events, content.study | {"looks": looks})
    return judged(ranked, looks[-1][1])


def judged(ranked: pl.DataFrame, last_error: float) -> pl.DataFrame:
    """Return which points of a ranking are good, and which repeat that they are."""
    # Runs that diverged or have not solved the task have no loss to compare.
    unsolved = (pl.col("runs") - pl.col("solved")).fill_null(0)
    failing = (unsolved + pl.col("confirm_diverged")) / pl.col("confirm")
    ranked = ranked.with_columns(fails_more=failing > failing.filter("reference").first())
    # An earlier look may have shown it.
    was_good = pl.col("verdict").is_in([NEGLIGIBLE, BETTER, BETTER_OPEN])
    chance = pl.col("probability_worse")
    is_good = (was_good | (chance < last_error)) & ~pl.col("fails_more")
    repeats = (chance < ERROR) & ~pl.col("fails_more")
    # Where most runs fail, the others say nothing.
    has_interval = pl.col("difference_low").is_not_null()
    known = ranked.with_columns(
        good=is_good.fill_null(value=False),
        repeats=repeats.fill_null(value=False),
        difference=pl.when(has_interval).then("difference"),
    )
    is_not_worse = pl.col("good") & (pl.col("verdict") == UNDECIDED)
    verdict = pl.when(is_not_worse).then(pl.lit(NOT_WORSE)).otherwise("verdict")
    points = known.with_columns(verdict=verdict)
    return points.filter(~pl.col("reference") & ~pl.col("is_baseline"))


def walk_report(walk: pl.DataFrame, row: str, margin: float) -> Report:
    """Return where a walk ended, and a table of all points that it compared."""
    rows = []
    for point in walk.to_dicts():
        ends = point["difference_low"], point["difference_high"]
        difference = format_mean(point["difference"], *ends, "+.3f")
        said = shown_verdict(point["verdict"])
        if point["fails_more"]:
            said += ", fails more often"
        if point["taken"]:
            said += ", cut"
        if point["repeated"] is not None:
            said += AGAIN[point["repeated"]]
        parameters = f"{point['parameters']:,}"
        rows.append([str(point["step"]), point["label"], said, difference, parameters])
    header = ("step", "point", "verdict", "difference", "parameters")
    title = "steps of the walk; each interval is one of 95 %, all verdicts share an error of 5 %"
    table = TextTable(title, header, rows, frozenset({"point", "verdict"}))
    answer = f"No part of {row} is cut: each cut may cost {margin:g} nats or more."
    lost = walk.filter(~pl.col("repeated"))["label"]
    path = walk.filter("taken", ~pl.col("label").is_in(lost.implode()))["label"].to_list()
    if path:
        answer = (
            f"{row}, {path[-1]}, is at most {margin:g} nats worse than the whole,"
            " with 95 % confidence."
        )
    for label in lost:
        answer += f" New seeds do not repeat {label}."
    last = walk["step"].max()
    is_open = pl.col("repeated").is_null() & (pl.col("verdict") == UNDECIDED)
    undecided = walk.filter(is_open, step=last).height
    if undecided:
        # Their intervals are wide, which does not show that the parts are needed.
        answer += f" Undecided in step {last}: {undecided}; raise --seeds and --samples."
    return Report((), (table,), (), walk, answer=answer)
