"""n-gram models with a window: dependence on tokens, and limits (DLM1, 3, 4; Markov MLP)."""

from itertools import permutations

import pytest
import torch

from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import (
    ALWAYS,
    assert_same_model,
    copy_weights,
    permute_tokens,
    set_weights,
    small,
)
from tests.tiny import CLOSE, every_sequence


def test_window_of_one_is_the_log_bilinear_bigram() -> None:
    model = small("ngram_log_bilinear", window=1)
    table = model.embedding.weight
    bigram = torch.log_softmax(model.transition(table) @ table.T, dim=-1)
    tokens, lengths = every_sequence(model.task)
    expected = bigram[tokens[:, :-1], tokens[:, 1:]].detach()
    assert_close(log_prob(model, tokens, lengths)[:, 1:], expected, CLOSE, "bigram")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_permuting_weights_with_positions_changes_nothing(order: tuple[int, ...]) -> None:
    """Permuting the blocks W_j like the tokens t-j leaves the prediction unchanged."""
    first, second = (small("ngram_log_bilinear", window=3), small("ngram_log_bilinear", window=3))
    copy_weights(second, first, "embedding.weight", "transition.bias")
    blocks = first.transition.weight.unflatten(1, (3, -1))[:, list(order)]
    set_weights(second, {"transition.weight": blocks.flatten(1)})
    tokens, _ = every_sequence(first.task)
    oldest_first = torch.tensor([2 - order[2 - i] for i in range(3)])
    moved = permute_tokens(tokens[:, :4], oldest_first, at=1)
    assert_close(
        next_log_prob(second, moved), next_log_prob(first, tokens[:, :4]), CLOSE, "moved window"
    )


@pytest.mark.parametrize("window", [1, 3])
def test_identity_permutation_is_the_log_bilinear_ngram(window: int) -> None:
    mixed, plain = (
        small(name, window=window) for name in ("permutation_log_bilinear", "ngram_log_bilinear")
    )
    copy_weights(mixed, plain, "embedding.weight", "transition.weight", "transition.bias")
    identity = torch.zeros(len(mixed.orders))
    identity[mixed.orders.tolist().index(list(range(window)))] = ALWAYS
    set_weights(mixed, {"weights.logits": identity})
    assert_same_model(mixed, plain)


@pytest.mark.parametrize("components", [1, 3])
def test_identical_maps_are_one_log_bilinear_ngram(components: int) -> None:
    mixed = small("log_bilinear_mixture", components=components, weights="learned")
    plain = small("ngram_log_bilinear")
    copy_weights(mixed, plain, "embedding.weight")
    weight, bias = plain.transition.weight, plain.transition.bias
    set_weights(
        mixed,
        {
            "transition.weight": weight.repeat(components, 1),
            "transition.bias": bias.repeat(components),
        },
    )
    assert_same_model(mixed, plain)


def test_mixture_averages_probabilities() -> None:
    mixed = small("log_bilinear_mixture", components=2)
    parts = [small("ngram_log_bilinear") for _ in range(2)]
    tokens, lengths = every_sequence(mixed.task)
    for k, part in enumerate(parts):
        copy_weights(part, mixed, "embedding.weight")
        maps = mixed.transition
        set_weights(part, {"transition.weight": maps.weight.chunk(2)[k]})
        set_weights(part, {"transition.bias": maps.bias.chunk(2)[k]})
    parts_scores = torch.stack([log_prob(part, tokens, lengths) for part in parts])[..., 1:]
    assert_close(
        log_prob(mixed, tokens, lengths)[:, 1:].exp(), parts_scores.exp().mean(0), CLOSE, "mixture"
    )


@pytest.mark.parametrize("window", [1, 3])
def test_linear_markov_mlp_is_the_log_bilinear_ngram(window: int) -> None:
    network = small("markov_mlp", window=window, depth=0)
    plain = small("ngram_log_bilinear", window=window)
    copy_weights(network, plain, "embedding.weight", "transition.weight:layers.0.weight")
    copy_weights(network, plain, "transition.bias:layers.0.bias")
    assert_same_model(network, plain)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_untied_network_follows_the_equation(activation: str) -> None:
    model = small("markov_mlp", depth=1, window=2, tied=False, activation=activation)
    prefix = every_sequence(model.task)[0][:, :3]
    x = model.embedding(prefix[:, [2, 1]]).flatten(1)
    hidden = getattr(torch.nn.functional, activation)(model.layers[0](x))
    expected = torch.log_softmax(model.layers[1](hidden) @ model.output.weight.T, dim=-1)
    assert_close(next_log_prob(model, prefix), expected.detach(), CLOSE, "network")
