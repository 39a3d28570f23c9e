"""Corpora, one per file, and the code that turns text into batches.

Importing this package registers every corpus:

    lmzoo.data.corpus.open_corpus("captions")
"""

from lmzoo.base.registry import discover

discover(__name__)
