"""One model per file, by family; importing this package finds them all."""

from lmzoo.registry import discover

discover(__name__)
