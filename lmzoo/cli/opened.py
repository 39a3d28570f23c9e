"""Open a trained run, and say what was read of a user's text and what is lost.

The block goes to stderr, so that the results of a command can be piped.
"""

from pathlib import Path

from lmzoo.data.corpus import Corpus
from lmzoo.data.text_facts import describe_data
from lmzoo.streams import echo
from lmzoo.train.trained import TrainedRun, load_run


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
