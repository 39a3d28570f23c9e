"""Models of a window of tokens: what they see, and what they become (DLM1, 3, 4; Markov MLP)."""

from itertools import permutations

import pytest
import torch

from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.limits import ALWAYS, copied, put, reorder, row, same_model, sees
from tests.tiny import CLOSE, every_sequence

WINDOWED = ["ngram_log_bilinear", "permutation_log_bilinear", "log_bilinear_mixture", "markov_mlp"]


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("window", [1, 2, 3])
def test_exactly_the_window_is_seen(name: str, window: int) -> None:
    assert sees(row(name, window=window)) == [back <= window for back in (1, 2, 3)]


def test_a_window_of_one_is_the_log_bilinear_bigram() -> None:
    model = row("ngram_log_bilinear", window=1)
    table = model.embedding.weight
    bigram = torch.log_softmax(model.transition(table) @ table.T, dim=-1)
    tokens, lengths = every_sequence(model.task)
    expected = bigram[tokens[:, :-1], tokens[:, 1:]].detach()
    assert_close(log_prob(model, tokens, lengths)[:, 1:], expected, CLOSE, "bigram")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_permuting_weights_with_positions_changes_nothing(order: tuple[int, ...]) -> None:
    """W_j follows its token: block j of the map moves where token t-j moves."""
    one, other = row("ngram_log_bilinear", window=3), row("ngram_log_bilinear", window=3)
    copied(other, one, "embedding.weight", "transition.bias")
    blocks = one.transition.weight.unflatten(1, (3, -1))[:, list(order)]
    put(other, {"transition.weight": blocks.flatten(1)})
    tokens, _ = every_sequence(one.task)
    oldest_first = torch.tensor([2 - order[2 - i] for i in range(3)])
    moved = reorder(tokens[:, :4], oldest_first, at=1)
    assert_close(
        next_log_prob(other, moved), next_log_prob(one, tokens[:, :4]), CLOSE, "moved window"
    )


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_even_permutations_ignore_the_order_of_the_window(order: tuple[int, ...]) -> None:
    model = row("permutation_log_bilinear", window=3, weights="uniform")
    prefix = every_sequence(model.task)[0][:, :4]
    moved = reorder(prefix, torch.tensor(order), at=1)
    assert_close(next_log_prob(model, moved), next_log_prob(model, prefix), CLOSE, "reordered")


@pytest.mark.parametrize("window", [1, 3])
def test_the_identity_permutation_is_the_log_bilinear_ngram(window: int) -> None:
    mixed, plain = (
        row(name, window=window) for name in ("permutation_log_bilinear", "ngram_log_bilinear")
    )
    copied(mixed, plain, "embedding.weight", "transition.weight", "transition.bias")
    identity = torch.zeros(len(mixed.orders))
    identity[mixed.orders.tolist().index(list(range(window)))] = ALWAYS
    put(mixed, {"weights.logits": identity})
    same_model(mixed, plain)


@pytest.mark.parametrize("components", [1, 3])
def test_identical_maps_are_one_log_bilinear_ngram(components: int) -> None:
    mixed = row("log_bilinear_mixture", components=components, weights="learned")
    plain = row("ngram_log_bilinear")
    copied(mixed, plain, "embedding.weight")
    weight, bias = plain.transition.weight, plain.transition.bias
    put(
        mixed,
        {
            "transition.weight": weight.repeat(components, 1),
            "transition.bias": bias.repeat(components),
        },
    )
    same_model(mixed, plain)


def test_different_maps_are_averaged_as_probabilities() -> None:
    mixed = row("log_bilinear_mixture", components=2)
    parts = [row("ngram_log_bilinear") for _ in range(2)]
    tokens, lengths = every_sequence(mixed.task)
    for k, part in enumerate(parts):
        copied(part, mixed, "embedding.weight")
        maps = mixed.transition
        put(part, {"transition.weight": maps.weight.chunk(2)[k]})
        put(part, {"transition.bias": maps.bias.chunk(2)[k]})
    each = torch.stack([log_prob(part, tokens, lengths) for part in parts])[..., 1:]
    assert_close(
        log_prob(mixed, tokens, lengths)[:, 1:].exp(), each.exp().mean(0), CLOSE, "mixture"
    )


@pytest.mark.parametrize("window", [1, 3])
def test_a_linear_markov_mlp_is_the_log_bilinear_ngram(window: int) -> None:
    network = row("markov_mlp", window=window, depth=0)
    plain = row("ngram_log_bilinear", window=window)
    copied(network, plain, "embedding.weight", "transition.weight:layers.0.weight")
    copied(network, plain, "transition.bias:layers.0.bias")
    same_model(network, plain)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_an_untied_network_computes_its_equation(activation: str) -> None:
    model = row("markov_mlp", depth=1, window=2, tied=False, activation=activation)
    prefix = every_sequence(model.task)[0][:, :3]
    x = model.embedding(prefix[:, [2, 1]]).flatten(1)
    hidden = getattr(torch.nn.functional, activation)(model.layers[0](x))
    expected = torch.log_softmax(model.layers[1](hidden) @ model.output.weight.T, dim=-1)
    assert_close(next_log_prob(model, prefix), expected.detach(), CLOSE, "network")
