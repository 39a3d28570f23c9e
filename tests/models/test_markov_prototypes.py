"""Prototypes or a map of the previous token (DLM18, 28)."""

import pytest
import torch

from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, next_log_prob
from tests.models.limits import NEVER, copied, put, row, same_model
from tests.tiny import CLOSE, every_sequence


def test_without_the_map_it_is_the_aggregate_markov_model() -> None:
    mixed, plain = row("prototype_rotation_mixture"), row("aggregate_markov")
    copied(mixed, plain, "embedding.weight", "words.means:prototypes.means")
    put(mixed, {"gate.weight": torch.cat([torch.zeros(1, 4), plain.gate.weight])})
    put(mixed, {"gate.bias": torch.cat([torch.tensor([NEVER]), plain.gate.bias])})
    same_model(mixed, plain)


def test_without_prototypes_it_is_the_log_bilinear_bigram() -> None:
    mixed = row("prototype_rotation_mixture", components=0)
    plain = row("ngram_log_bilinear", window=1)
    copied(mixed, plain, "embedding.weight", "transition.weight:map.weight")
    copied(mixed, plain, "transition.bias:map.bias")
    same_model(mixed, plain)


def test_one_prototype_behind_a_constant_gate_is_the_interpolated_bigram() -> None:
    mixed, plain = row("prototype_rotation_mixture", components=1), row("interpolated_bigram")
    copied(mixed, plain, "embedding.weight", "transition.weight:map.weight")
    copied(mixed, plain, "transition.bias:map.bias")
    put(mixed, {"gate.weight": 0.0, "gate.bias": plain.weights.logits.flip(0)})
    put(mixed, {"prototypes.means": plain.transition(torch.ones(1, 4))})
    same_model(mixed, plain)


@pytest.mark.parametrize("norm", list(Norm))
def test_the_mapped_vector_is_not_normalised(norm: Norm) -> None:
    """The equation, with N on the previous token and on the prototypes only."""
    model = row("prototype_rotation_mixture_sphere", norm=norm)
    prefix = every_sequence(model.task)[0][:, :3]
    table = model.embedding.weight
    x = normalise_vectors(table[prefix[:, -1]], norm)
    k = normalise_vectors(model.prototypes.means, norm)
    w = torch.softmax(model.gate(x), dim=1)
    expected = w[:, :1] * torch.softmax(model.map(x) @ table.T, dim=1)
    expected = expected + w[:, 1:] @ torch.softmax(k @ table.T, dim=1)
    assert_close(next_log_prob(model, prefix).exp(), expected.detach(), CLOSE, "P(v | s)")


def test_the_sphere_changes_nothing_that_is_on_it() -> None:
    sphere, plain = row("prototype_rotation_mixture_sphere"), row("prototype_rotation_mixture")
    for name in ("embedding.weight", "prototypes.means"):
        put(sphere, {name: normalise_vectors(sphere.get_parameter(name), Norm.RMS)})
    copied(plain, sphere, *dict(sphere.named_parameters()))
    same_model(sphere, plain)


def test_the_posterior_counts_the_map_as_number_zero() -> None:
    model = row("prototype_rotation_mixture")
    put(model, {"gate.bias": torch.tensor([-NEVER, 0, 0, 0])})
    posterior = model.posterior(*every_sequence(model.task))
    assert posterior.shape[1] == 4
    assert (posterior[:, 0] > 0.99).all()
