"""A study on one page: the question, the table, the curves, the audit, what the best model says.

    python analysis/report.py runs/gru_ablation-captions
    python analysis/report.py runs/cath-cath --out cath.html --data-dir DATA --metric sentence

The page opens without a network and needs no other file. Samples and the audit are asked of the
library, which takes a quarter of a minute each; --no-ask leaves them out. A heat map is shown if
`analysis/epistasis.py` left one in the study's folder (`epistasis.svg` or `epistasis.png`).
"""

import base64
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from analysis.compare import report as comparison_report
from analysis.curves import curves
from analysis.frames.asked import audit, samples
from analysis.frames.audited import audited
from analysis.frames.commands import reproduce
from analysis.frames.comparing import comparison
from analysis.frames.load import Folder, load
from analysis.frames.output import output
from analysis.frames.page import Section, figure, listing, page, table, words
from analysis.frames.ranking import TABLE, ranking
from analysis.frames.standings import standings
from lmzoo.errors import UserError
from lmzoo.record import CONFIG, read_json

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
    sections += _heat_map(folder.path)
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


def _heat_map(path: Path) -> list[Section]:
    for name in HEAT_MAPS:
        file = path / name
        if file.is_file():
            kind = {"svg": "svg+xml", "png": "png"}[file.suffix[1:]]
            data = base64.b64encode(file.read_bytes()).decode()
            image = (
                f'<figure><img alt="interactions" src="data:image/{kind};base64,{data}"></figure>'
            )
            return [Section("Interactions", image)]
    return []


def _audit(folder: Folder, ranked: pl.DataFrame, *, ask: bool) -> str:
    """Each point's verdict from when it was run, and the best of each table questioned anew."""
    leaking = ranked.filter(pl.col("leaks") != "")
    lines = [f"{row['label']}: {row['leaks']}" for row in leaking.to_dicts()]
    checked = ranked.filter(pl.col("score").is_not_null()).height
    verdict = [f"{checked - len(lines)} of {checked} points passed when they were run", *lines]
    body = words(verdict, "verdict")
    for row in _best(ranked).to_dicts() if ask else ():
        config = read_json(folder.path / _run(folder, row["point"]) / CONFIG)
        answer, facts = audit(config)
        body += words([f"the best, {row['label']}, questioned anew:"], "verdict")
        body += table(audited(facts)) if facts else words([answer.text])
        body += listing(answer.command)
    return body


def _samples(path: Path, folder: Folder, ranked: pl.DataFrame, data_dir: Path | None) -> str:
    body = ""
    for row in _best(ranked).to_dicts():
        answer = samples(path / _run(folder, row["point"]), data_dir=data_dir)
        body += words([f"{row['label']}, {row['metric']} loss {row['loss']:.4f}:"], "verdict")
        body += listing(answer.text) + listing(answer.command)
    return body


def _best(ranked: pl.DataFrame) -> pl.DataFrame:
    """The first of each table."""
    return ranked.filter(pl.col("rank") == 1).unique(TABLE, keep="first", maintain_order=True)


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
    ask: Annotated[  # noqa: FBT002
        bool, typer.Option(help="Draw samples and audit the best models.")
    ] = True,
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


if __name__ == "__main__":
    typer.run(main)
