"""Recurrent cells: a recurrence or a family per file, with its equation and named cuts.

In come vectors or tokens (B, T) and an initial state; out come vectors (B, T, H) and a state.
Read `mgu.py` first, then `base.py`: the contract `project`, `step`, `scan`. Importing this package
registers all cells.
"""

from lmzoo.base.registry import discover

discover(__name__)
