"""The model that a subcommand inspects: a trained run, or a row with its initial weights."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from lmzoo import zoo
from lmzoo.base.command_line import nest_settings, parse_settings
from lmzoo.cli.opened import open_run, say_facts
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, corpus_config, open_corpus
from lmzoo.lab.cli.run_names import RUN_HELP, find_trained, warn_untrained

RunOrRow = Annotated[str, typer.Argument(metavar="RUN_OR_ROW", help=f"{RUN_HELP}, or a row (its latest run, or else its initial weights).")]  # fmt: skip
CorpusName = Annotated[str, typer.Option(help="Corpus for a row that is not trained.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the initial weights of a row.")]


class Subject(NamedTuple):
    """A model and the corpus of its run; `run` is None for initial weights."""

    model: LanguageModel
    corpus: Corpus
    run: Path | None
    title: str


def open_subject(
    name: str,
    corpus: str,
    data_dir: Path | None,
    settings: list[str] | None,
    seed: int,
    runs: Path,
    said: set[str] | None = None,
) -> Subject:
    """Return the run that a text names, or the row; a row with settings is not trained."""
    folder = None if settings else find_trained(name, runs)
    if folder is not None:
        run = open_run(folder, data_dir, said)
        return Subject(run.model, run.corpus, folder, f"{run.row_name} on {run.corpus.name}")
    data = open_corpus(corpus_config(corpus), data_dir)
    say_facts(data, said)
    fields = nest_settings(parse_settings(settings or []), "model")
    return Subject(zoo.build(zoo.config(name, **fields), data.task, seed), data, None, name)


def open_subjects(
    names: Iterable[str],
    corpus: str,
    data_dir: Path | None,
    settings: list[str] | None,
    seed: int,
    runs: Path,
) -> dict[str, Subject]:
    """Return a subject for each name."""
    said: set[str] = set()
    given = corpus, data_dir, settings, seed, runs
    return {name: open_subject(name, *given, said) for name in names}


def warn_initial(subjects: dict[str, Subject]) -> None:
    """Say on stderr which subjects have their initial weights."""
    warn_untrained(name for name, subject in subjects.items() if subject.run is None)
