"""Sixty short sequences with something to learn."""

from tests.training.conftest import corpus  # noqa: F401
