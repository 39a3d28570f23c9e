"""Prototype-rotation mixture (DLM18, 28)."""

import pytest
import torch

from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, next_log_prob
from tests.models.equivalence import NEVER, set_weights, small
from tests.tiny import CLOSE, every_sequence


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
