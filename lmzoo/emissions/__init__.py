"""Emissions: from a context vector to a distribution over the vocabulary, one per file.

In come vectors (.., E), targets and the embedding table; out come log-probabilities.
Read `base.py` first: `log_prob` of given targets, `dense` for all tokens.
"""

from lmzoo.base.registry import discover

discover(__name__)
