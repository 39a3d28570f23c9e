"""A study on one page: the question, the table, the curves, the audit, what the best model says.

    lmzoo report runs/gru_ablation-captions
    lmzoo report runs/cath-cath --out cath.html --data-dir DATA --metric sentence

The page opens without a network and needs no other file. Samples and the audit are asked of the
library, which takes a quarter of a minute each; --no-ask leaves them out. They are of each table's
first row that neither leaks nor counts. Where points are mutants of one cell the page holds a heat
map of their effects: `epistasis.svg` or `.png` of the study's folder, or else drawn here.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import polars as pl
import typer

from lmzoo.analysis.audit_table import audited
from lmzoo.analysis.baseline_comparison import COUNTED
from lmzoo.analysis.comparing import comparison
from lmzoo.analysis.effects import effects
from lmzoo.analysis.formatting import title
from lmzoo.analysis.heat_map import heat_maps
from lmzoo.analysis.html import Section, figure, listing, page, table, words
from lmzoo.analysis.load import Folder, load
from lmzoo.analysis.mutants import read_mutants
from lmzoo.analysis.output_path import output
from lmzoo.analysis.ranking import TABLE, ranking
from lmzoo.analysis.ranking_table import standings
from lmzoo.analysis.reproduce import reproduce
from lmzoo.analysis.subprocess_cli import audit, samples
from lmzoo.cli.compare import report as comparison_report
from lmzoo.cli.curves import curves
from lmzoo.errors import UserError
from lmzoo.store.records import CONFIG, read_json

HEAT_MAPS = ("epistasis.svg", "epistasis.png")


def render_report(
    path: Path, *, metric: str = "token", ask: bool = True, data_dir: Path | None = None
) -> str:
    """The page of the study in folder `path`.

    Args:
        path: the study's folder.
        metric: `token` or `sentence`.
        ask: whether to draw samples and audit the best models, which loads them.
        data_dir: where the corpus's files lie, for the samples.

    Raises:
        UserError: nothing can be ranked, or a name is unknown.
    """
    folder = load(path)
    ranked = ranking(folder.runs, folder.events, folder.study, metric=metric)
    said = standings(folder, ranked)
    question, *facts = said.heading
    tables = "".join(map(table, said.sheets)) + words(said.legend)
    sections = [Section("Ranking", words(facts) + tables)]
    sections += _compared(folder, metric)
    drawn = "".join(map(figure, curves(folder, ranked, metric).values()))
    sections.append(Section("Curves", drawn or words(["no run has finished an epoch"])))
    sections += _interactions(folder, metric)
    sections.append(Section("Audit", _audit(folder, ranked, ask=ask)))
    if ask:
        sections.append(Section("Samples", _samples(path, folder, ranked, data_dir)))
    sections.append(Section("Reproduce", listing(reproduce(path, folder))))
    return page(question, [f"study {folder.study['name']}"], sections)


def _compared(folder: Folder, metric: str) -> list[Section]:
    """The comparison over test sequences, where the runs kept their losses."""
    try:
        said = comparison_report(folder, comparison(folder, metric=metric))
    except UserError:
        return []
    _, *facts = said.heading
    body = "".join(map(table, said.sheets))
    return [Section("Over seeds and sequences", words(facts) + body + words(said.legend))]


def _interactions(folder: Folder, metric: str) -> list[Section]:
    """The heat map that someone left in the folder, or one of its mutants, if it has any."""
    body = _left(folder.path) or _drawn(folder, metric)
    return [Section("Interactions", body)] if body else []


def _left(path: Path) -> str:
    for name in HEAT_MAPS:
        file = path / name
        if file.is_file():
            kind = {"svg": "svg+xml", "png": "png"}[file.suffix[1:]]
            data = base64.b64encode(file.read_bytes()).decode()
            return (
                f'<figure><img alt="interactions" src="data:image/{kind};base64,{data}"></figure>'
            )
    return ""


def _drawn(folder: Folder, metric: str) -> str:
    try:
        cells = read_mutants(folder.path, folder, metric)
    except UserError:  # no mutants, or no wild type to measure them from
        return ""
    frames = [frame for frame in map(effects, cells) if frame["effect"].count()]
    if not frames:  # no two mutants differ in one switch only
        return ""
    lines = [f"{metric} loss, means over {cells[0].losses.shape[1]} seeds"]
    lines += [
        f"{cell.cell}: mutants left out, as a seed is missing: {len(cell.left_out)} "
        "(lmzoo/cli/epistasis.py names them)"
        for cell in cells
        if cell.left_out
    ]
    return words(lines) + figure(heat_maps(frames, "effects of the switches"))


def _audit(folder: Folder, ranked: pl.DataFrame, *, ask: bool) -> str:
    """Each point's verdict from when it was run, and the best of each table questioned anew."""
    leaking = ranked.filter(pl.col("leaks") != "")
    lines = [f"{row['label']}: {row['leaks']}" for row in leaking.to_dicts()]
    checked = ranked.filter(pl.col("score").is_not_null()).height
    verdict = [f"{checked - len(lines)} of {checked} points passed when they were run", *lines]
    body = words(verdict, "verdict")
    for row, why in _best(folder, ranked) if ask else ():
        if row is None:
            body += words([why], "verdict")
            continue
        config = read_json(folder.path / _run(folder, row["point"]) / CONFIG)
        answer, facts = audit(config)
        body += words([f"the best, {row['label']}{why}, questioned anew:"], "verdict")
        body += table(audited(facts)) if facts else words([answer.text])
        body += listing(answer.command)
    return body


def _samples(path: Path, folder: Folder, ranked: pl.DataFrame, data_dir: Path | None) -> str:
    body = ""
    for row, why in _best(folder, ranked):
        if row is None:
            body += words([why], "verdict")
            continue
        answer = samples(path / _run(folder, row["point"]), data_dir=data_dir)
        loss = f"{row['metric']} loss {row['loss']:.4f}"
        body += words([f"{row['label']}{why}, {loss}:"], "verdict")
        body += listing(answer.text) + listing(answer.command)
    return body


class Best(NamedTuple):
    """The row of a table that is questioned."""

    row: dict[str, Any] | None
    why: str
    """Why it is not the table's first, or why there is none."""


def _best(folder: Folder, ranked: pl.DataFrame) -> Iterator[Best]:
    """The first of each table that neither leaks nor counts.

    What leaks has no next token to draw, and counts were put there to be beaten.
    """
    counts = _counts(folder)
    for part in ranked.drop_nulls("rank").partition_by(TABLE, maintain_order=True):
        before: list[str] = []
        for row in part.to_dicts():
            if not row["leaks"] and row["point"] not in counts:
                behind = f" (rank {row['rank']}, behind {', and '.join(before)})" if before else ""
                yield Best(row, behind)
                break
            before.append(f"{row['label']}, which {'leaks' if row['leaks'] else 'counts'}")
        else:
            none = "no row to question or to draw from, as each that is ranked leaks or counts"
            yield Best(None, f"{title(part.row(0, named=True))}: {none}")


def _counts(folder: Folder) -> set[str]:
    """Points whose model is a table of counts."""
    models = folder.runs.select("point", "model").unique().collect()
    return {
        point
        for point, text in models.iter_rows()
        if json.loads(text).get("name") == COUNTED["name"]
    }


def _run(folder: Folder, point: str) -> str:
    """The first of a point's confirm runs that did not diverge."""
    events = folder.events.filter(pl.col("event") == "test").select("run").collect()
    tested = set(events["run"])
    runs = folder.study["chosen"][point]["runs"]
    return next(run for run in runs if run in tested)


def main(
    study: Annotated[Path, typer.Argument(help="The folder of a study.")],
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the study's folder if not given.")
    ] = None,
    metric: Annotated[str, typer.Option(help="token or sentence.")] = "token",
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
    ask: Annotated[bool, typer.Option(help="Draw samples and audit the best models.")] = True,
) -> None:
    """Write a study's page."""
    try:
        place = output(study, out, "report.html")
        text = render_report(study, metric=metric, ask=ask, data_dir=data_dir)
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    typer.echo(place)
