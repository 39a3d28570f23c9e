"""The fixtures of the toy study."""

from tests.toy_study import sentences as sentences
