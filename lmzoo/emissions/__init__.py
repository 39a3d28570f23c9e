"""Emissions: from a context vector to a distribution over the vocabulary, one per file."""

from lmzoo.base.registry import discover

discover(__name__)
