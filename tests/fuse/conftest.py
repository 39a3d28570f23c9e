"""Sixty short sequences with something to learn."""

from tests.training.conftest import corpus, taping  # noqa: F401
