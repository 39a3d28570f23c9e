"""Corpora, one per file, and the way from text to batches.

corpus.open_corpus("captions")      importing this package finds every corpus
"""

from lmzoo.registry import discover

discover(__name__)
