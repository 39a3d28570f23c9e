"""The splits of a corpus and their text."""

from lmzoo.data.corpus import Corpus, Sequences


def parts_of(corpus: Corpus) -> tuple[Sequences, Sequences, Sequences]:
    return corpus.train, corpus.valid, corpus.test


def decoded(corpus: Corpus, part: Sequences) -> list[str]:
    """Return the text of every target."""
    rows = part.tokens.tolist()
    return list(map(corpus.vocabulary.decode, rows))
