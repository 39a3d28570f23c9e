"""Recurrent cells, a recurrence or a family per file: equation, named options, a pure `step`.

A new cell is one file here; importing this package registers it.
"""

from lmzoo.base.registry import discover

discover(__name__)
