"""Open the models that a subcommand names, and say what was read of a user's text and what is lost.

The block goes to stderr, so that the results of a command can be piped.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lmzoo import zoo
from lmzoo.cli.run_names import find_trained, warn_untrained
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, corpus_config, open_corpus
from lmzoo.data.text_facts import describe_data
from lmzoo.streams import echo
from lmzoo.train.trained import TrainedRun, load_run


class Opened(NamedTuple):
    """A model and its corpus."""

    model: LanguageModel
    corpus: Corpus
    folder: Path | None
    """The folder of its run; None for initial weights."""
    title: str


def open_models(
    rows: Mapping[str, tuple[str, Mapping[str, Any]]],
    *,
    runs: Path,
    corpus: str,
    data_dir: Path | None,
    seed: int,
    trained: bool = True,
) -> Iterator[tuple[str, Opened]]:
    """Yield the model of each label: that of a run, or that of a row with its initial weights.

    Args:
        rows: label -> name of a run or row, and fields of the model.
        runs: folder of the runs.
        corpus: corpus of a row that is not trained.
        data_dir: folder of the corpus files.
        seed: seed of the initial weights.
        trained: whether runs are looked for.
    """
    said: set[str] = set()
    untrained = []
    for label, (name, fields) in rows.items():
        folder = find_trained(name, runs) if trained and not fields else None
        if folder is not None:
            run = load_run(folder, data_dir)
            opened = Opened(run.model, run.corpus, folder, f"{run.row_name} on {run.corpus.name}")
        else:
            data = open_corpus(corpus_config(corpus), data_dir)
            model = zoo.build(zoo.config(name, **fields), data.task, seed)
            opened = Opened(model, data, None, name)
            untrained.append(label)
        if opened.corpus.fingerprint not in said:
            said.add(opened.corpus.fingerprint)
            say_facts(opened.corpus)
        yield label, opened
    warn_untrained(untrained)


def open_run(folder: Path, data_dir: Path | None) -> TrainedRun:
    """Load a trained run; see `load_run`."""
    trained = load_run(folder, data_dir)
    say_facts(trained.corpus)
    return trained


def say_facts(corpus: Corpus) -> None:
    """Print on stderr what reading the user's text gave and lost; nothing for other corpora."""
    if corpus.facts is not None:
        for line in (f"{corpus.name} {corpus.source}", *describe_data(corpus)):
            echo(line, err=True)
