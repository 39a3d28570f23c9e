"""Prototype-rotation mixture (DLM18, 28)."""

import pytest
import torch

from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, next_log_prob
from tests.models.equivalence import NEVER, assert_same_model, copy_weights, set_weights, small
from tests.tiny import CLOSE, every_sequence


def test_without_prototypes_it_is_the_log_bilinear_bigram() -> None:
    mixed = small("prototype_rotation_mixture", components=0)
    plain = small("ngram_log_bilinear", window=1)
    copy_weights(mixed, plain, "embedding.weight", "transition.weight:map.weight")
    copy_weights(mixed, plain, "transition.bias:map.bias")
    assert_same_model(mixed, plain)


@pytest.mark.parametrize("norm", list(Norm))
def test_mapped_vector_is_not_normalised(norm: Norm) -> None:
    """N is applied to the previous token and to the prototypes only."""
    model = small("prototype_rotation_mixture_sphere", norm=norm)
    prefix = every_sequence(model.task)[0][:, :3]
    table = model.embedding.weight
    x = normalise_vectors(table[prefix[:, -1]], norm)
    k = normalise_vectors(model.prototypes.means, norm)
    w = torch.softmax(model.gate(x), dim=1)
    expected = w[:, :1] * torch.softmax(model.map(x) @ table.T, dim=1)
    expected = expected + w[:, 1:] @ torch.softmax(k @ table.T, dim=1)
    assert_close(next_log_prob(model, prefix).exp(), expected.detach(), CLOSE, "P(v | s)")


def test_latent_value_zero_is_the_map() -> None:
    model = small("prototype_rotation_mixture")
    set_weights(model, {"gate.bias": torch.tensor([-NEVER, 0, 0, 0])})
    posterior = model.posterior(*every_sequence(model.task))
    assert posterior.shape[1] == 4
    assert (posterior[:, 0] > 0.99).all()
