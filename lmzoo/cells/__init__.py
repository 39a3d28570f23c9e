"""Recurrent cells, one recurrence per file: the equation, the named options and a pure `step`.

A new cell is one file here; importing this package registers it.
"""

from lmzoo.base.registry import discover

discover(__name__)
