"""From a context vector to a distribution over the vocabulary; one head per file."""

from lmzoo.registry import discover

discover(__name__)
