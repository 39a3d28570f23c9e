"""Rows whose vectors are normalised equal the plain rows at normalised vectors."""

import pytest

from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.models.equivalence import assert_same_model, copy_weights, set_weights, small

ROWS = [
    ("trigram_latent_crf", {}, ("embedding.weight", "words.means")),
    (
        "lagged_aggregate_markov",
        {"scaled": True, "pad": "unit"},
        ("embedding.weight", "words.means"),
    ),
    ("prototype_rotation_mixture", {}, ("embedding.weight", "prototypes.means")),
    ("aligned_aggregate_markov", {}, ("words.means",)),
]
"""Row, fields of the plain row, and the normalised parameters."""


@pytest.mark.parametrize("norm", ["rms", "std"])
@pytest.mark.parametrize(("name", "fields", "parts"), ROWS)
def test_normalised_parameters_are_not_changed_by_the_norm(name, fields, parts, norm) -> None:
    sphere, plain = small(f"{name}_sphere", norm=norm), small(name, **fields)
    for part in parts:
        set_weights(sphere, {part: normalise_vectors(sphere.get_parameter(part), Norm(norm))})
    copy_weights(plain, sphere, *dict(sphere.named_parameters()))
    assert_same_model(sphere, plain)
