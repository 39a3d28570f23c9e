"""ELMo: two language models, their scores and their token representations."""

from typing import Any

import torch

from lmzoo import zoo
from lmzoo.laws.support import assert_close, log_prob
from tests.models.equivalence import LENGTH, small
from tests.tiny import CLOSE, SAME, batch, every_sequence

WIDTH = 4


def elmo(**fields: Any) -> Any:
    return small("elmo", **fields).eval()


def weights_of(model: Any, direction: str) -> dict[str, torch.Tensor]:
    """Return the weights of one direction with the names of the recurrent language model."""
    names = {"cells.0.": "cell.", "cells.1.": "upper.0."}
    actual = {}
    for name, value in getattr(model, direction).state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        actual[name] = value
    return actual


def recurrent() -> Any:
    return small("lstm_lm", num_layers=2).eval()


def test_each_direction_is_a_recurrent_language_model() -> None:
    model, plain = elmo(num_layers=2), recurrent()
    tokens, lengths = every_sequence(model.task)
    lengths = 2 + torch.arange(len(tokens)) % (LENGTH - 1)
    plain.load_state_dict(weights_of(model, "forward_lm"))
    assert_close(
        log_prob(model, tokens, lengths), log_prob(plain, tokens, lengths), CLOSE, "forward"
    )
    back = small("backward_lm", reader=zoo.config("lstm_lm", num_layers=2, width=WIDTH))
    back.reader.load_state_dict(weights_of(model, "backward_lm"))
    with torch.no_grad():
        actual = model.backward_log_prob(tokens, lengths)
    assert_close(actual, log_prob(back, tokens, lengths), CLOSE, "backward")


def test_directions_train_independently() -> None:
    model, plain = elmo(num_layers=2), recurrent()
    plain.load_state_dict(weights_of(model, "forward_lm"))
    tokens, lengths = batch(model.task, count=20)
    for trained in (model, plain):
        optimiser = torch.optim.Adam(trained.parameters(), lr=0.1)
        for _ in range(5):
            optimiser.zero_grad()
            (-trained.objective(tokens, lengths).sum()).backward()
            optimiser.step()
    for name, value in weights_of(model, "forward_lm").items():
        assert_close(value, plain.state_dict()[name], CLOSE, name)
    before = weights_of(elmo(num_layers=2), "backward_lm")
    after = weights_of(model, "backward_lm")
    assert all((after[name] - before[name]).abs().max() > 0.1 for name in before)


def test_padding_does_not_change_representations() -> None:
    model = elmo()
    tokens, lengths = batch(model.task)
    t = torch.arange(LENGTH)
    mask = t < lengths[:, None]
    with torch.no_grad():
        before = model.represent(tokens, lengths)
        after = model.represent(tokens.masked_fill(~mask, 2), lengths)
    assert_close(after[mask], before[mask], SAME, "representations")
