"""Sixty short sequences with something to learn."""

from tests.train.conftest import corpus, taping  # noqa: F401
