"""Open a trained run, and say what was read of a user's text and what is lost.

The block goes to stderr, so that the results of a command can be piped.
"""

from pathlib import Path

from lmzoo.base.streams import echo
from lmzoo.data.corpus import Corpus, describe_data
from lmzoo.train.trained import TrainedRun, load_run


def open_run(folder: Path, data_dir: Path | None, said: set[str] | None = None) -> TrainedRun:
    """Load a trained run, see `load_run`, and say what its text lost, see `say_facts`."""
    trained = load_run(folder, data_dir)
    say_facts(trained.corpus, said)
    return trained


def say_facts(corpus: Corpus, said: set[str] | None = None) -> None:
    """Print on stderr what reading the user's text gave and lost; nothing for other corpora.

    `said` are the fingerprints of texts that need no second block.
    """
    said = set() if said is None else said
    if corpus.facts is not None and corpus.fingerprint not in said:
        said.add(corpus.fingerprint)
        for line in (f"{corpus.name} {corpus.source}", *describe_data(corpus)):
            echo(line, err=True)
