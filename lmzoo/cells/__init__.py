"""One recurrence per file: its equation, its named switches, a pure step.

A new cell is one file here; importing this package finds it.
"""

from lmzoo.registry import discover

discover(__name__)
