"""Rows that normalise vectors equal the plain rows at normalised vectors."""

import pytest

from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.models.equivalence import assert_same_model, copy_weights, set_weights, small

SCALED = {"scaled": True, "pad": "unit"}
ROWS = [
    ("trigram_latent_crf", "rms", {}, ("embedding.weight", "words.means")),
    ("lagged_aggregate_markov", "rms", SCALED, ("embedding.weight", "words.means")),
    ("prototype_rotation_mixture", "rms", {}, ("embedding.weight", "prototypes.means")),
    *(("aligned_aggregate_markov", norm, {}, ("words.means",)) for norm in ("rms", "std")),
]
"""Row, its norm, fields of the plain row, and the parameters that are normalised."""


@pytest.mark.parametrize(("name", "norm", "fields", "parts"), ROWS)
def test_a_norm_does_what_normalised_parameters_do(name, norm, fields, parts) -> None:
    def normalised(part):
        return normalise_vectors(sphere.get_parameter(part), Norm(norm))

    sphere, plain = small(f"{name}_sphere", norm=norm), small(name, **fields)
    if "embedding.weight" in parts:  # which are those of the output, too
        set_weights(sphere, {"embedding.weight": normalised("embedding.weight")})
    copy_weights(plain, sphere, *dict(sphere.named_parameters()))
    set_weights(plain, {part: normalised(part) for part in parts})
    assert_same_model(sphere, plain)
