"""Helpers to test that a model with certain parameter values equals another model."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from tests.tiny import CLOSE, assert_equal_single, every_sequence, tiny

VOCAB = 3
LENGTH = 5
"""Sizes with 81 sequences of full length, all of which are compared."""

NEVER = -60.0
ALWAYS = 60.0
"""Logits that give probability 0 and 1 in float32."""


def small(name: str, **fields: object) -> LanguageModel:
    """Return a tiny model whose parameters are scaled up, so that different models differ."""
    model = tiny(name, vocab=VOCAB, length=LENGTH, **fields)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model


def set_weights(model: LanguageModel, values: Mapping[str, Tensor | float]):
    """Set parameters by name."""
    with torch.no_grad():
        for name, value in values.items():
            given = torch.as_tensor(value)
            model.get_parameter(name).copy_(given)


def copy_weights(into: LanguageModel, source: LanguageModel, *names: str):
    """Copy parameters from `source`, given as `name` or `source_name:name`."""
    values = {}
    for name in names:
        theirs, _, ours = name.partition(":")
        if not ours:
            ours = theirs
        values[ours] = source.get_parameter(theirs)
    set_weights(into, values)


def assert_same_model(first: LanguageModel, second: LanguageModel):
    """Assert that both models give all sequences and all next tokens the same probability."""
    tokens, lengths = every_sequence(first.task)
    expected = log_prob(second, tokens, lengths)
    found = log_prob(first, tokens, lengths)
    assert_equal_single(found, expected)
    for t in range(1, LENGTH):
        prefix = tokens[:, :t]
        actual = next_log_prob(first, prefix)
        expected = next_log_prob(second, prefix)
        assert_close(actual, expected, CLOSE, f"distribution after {t} tokens")


def token_scores(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return log P of each token, from logits at its position."""
    log_p = logits.log_softmax(-1)
    chosen = log_p.gather(-1, tokens[..., None])
    return chosen[..., 0]


def assert_equation(model, equation: Callable[[Any, Tensor], Tensor]):
    """Assert that `equation` gives P(v | prefix) of every prefix of 1, 2 and 4 tokens."""
    tokens, _ = every_sequence(model.task)
    for length in (1, 2, 4):
        prefixes = tokens[:, :length].unique(dim=0)
        computed = [equation(model, prefix) for prefix in prefixes]
        expected = torch.stack(computed).detach()
        actual = next_log_prob(model, prefixes).exp()
        assert_close(actual, expected, CLOSE, f"{length} tokens")


def lag_dependence(model: LanguageModel) -> list[bool]:
    """Return whether the distribution at the last position depends on the token 1, 2, .. back."""
    tokens, _ = every_sequence(model.task)
    # Every sequence is there once, in the order of a product.
    each_token = (VOCAB,) * (LENGTH - 1)
    dense = next_log_prob(model, tokens[:, :-1])
    # The last token is the same in all, so that only earlier ones differ.
    dense = dense.unflatten(0, each_token)[..., 0, :]
    depends = []
    for axis in reversed(range(LENGTH - 2)):
        # Against the distribution after the first token of the vocabulary.
        first = dense.select(axis, 0).unsqueeze(axis)
        change = (dense - first).abs().max()
        depends.append(bool(change > 1e-4))
    return depends
