"""Comparing a model with what it must become when some of its parameters are set."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.tiny import CLOSE, every_sequence, tiny

VOCAB, LENGTH = 3, 5
"""81 sequences: all of them are compared."""

NEVER, ALWAYS = -60.0, 60.0
"""Logits that leave nothing of the alternatives in float32."""


def row(name: str, **fields: object) -> LanguageModel:
    """A tiny row, its parameters spread enough for any two functions to differ."""
    model = tiny(name, vocab=VOCAB, length=LENGTH, **fields)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model


def put(model: LanguageModel, values: Mapping[str, Tensor | float]) -> None:
    """Set parameters by name."""
    with torch.no_grad():
        for name, value in values.items():
            model.get_parameter(name).copy_(torch.as_tensor(value))


def copied(into: LanguageModel, source: LanguageModel, *names: str) -> None:
    """Copy parameters, `name` or `theirs:ours`, from `source`."""
    pairs = [name.partition(":") for name in names]
    put(into, {ours or theirs: source.get_parameter(theirs) for theirs, _, ours in pairs})


def same_model(one: LanguageModel, other: LanguageModel) -> None:
    """Both give all sequences, and all continuations, the same probability."""
    tokens, lengths = every_sequence(one.task)
    assert_close(log_prob(one, tokens, lengths), log_prob(other, tokens, lengths), CLOSE, "scores")
    for t in range(1, LENGTH):
        found, expected = next_log_prob(one, tokens[:, :t]), next_log_prob(other, tokens[:, :t])
        assert_close(found, expected, CLOSE, f"distribution after {t} tokens")


def sees(model: LanguageModel) -> list[bool]:
    """Whether the last position's distribution depends on the token 1, 2, .. steps before."""
    tokens, _ = every_sequence(model.task)
    dense = next_log_prob(model, tokens[:, :-1]).unflatten(0, (VOCAB,) * (LENGTH - 1))[..., 0, :]
    spread = [(dense - dense.select(d, 0).unsqueeze(d)).abs().max() for d in range(LENGTH - 2)]
    return [bool(s > 1e-4) for s in reversed(spread)]


def reorder(tokens: Tensor, order: Tensor, at: int) -> Tensor:
    """The tokens at..at+len(order)-1 put into another order."""
    moved = tokens.clone()
    moved[:, at : at + len(order)] = tokens[:, at + order]
    return moved
