"""Names of the values of latents."""

import pytest

from lmzoo.inspect.posterior import value_names
from tests.tiny import tiny

TOKENS = ("<start>", "a", "a")


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("latent_parent_uniform", 3, ("0 <start>", "1 a", "2 a")),
        ("slot_ngram", 3, ("0 <start>", "1 a", "2 a")),
        (
            "latent_parent_typed", 6,
            ("0 <start> / 0", "0 <start> / 1", "1 a / 0", "1 a / 1", "2 a / 0", "2 a / 1"),
        ),
        ("interpolated_bigram", 2, ("unigram", "bigram")),
        ("multi_transition_bigram", 3, ("unigram", "transition 1", "transition 2")),
        ("prototype_rotation_mixture", 3, ("map", "prototype 1", "prototype 2")),
        ("permutation_log_bilinear", 2, ("1 2", "2 1")),
        ("factorial_aggregate_markov", 6, ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")),
        ("gru_mixture", 3, ("0", "1", "2")),
    ],
)  # fmt: skip
def test_value_names(name: str, count: int, expected: tuple[str, ...]) -> None:
    assert value_names(tiny(name), count, TOKENS) == expected
