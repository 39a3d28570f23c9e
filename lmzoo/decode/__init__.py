"""Decoding: generate sequences from any causal model with its `begin` and `advance` methods.

sampling.py      ancestral sampling, with temperature and top-k; greedy decoding
beam.py          beam search
"""

from lmzoo.decode import beam, sampling  # noqa: F401  importing them registers their rows
