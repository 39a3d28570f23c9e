"""Stacked cells are the library's, and the composition of single ones (S4)."""

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.errors import UserError
from tests.laws.support import assert_close
from tests.models.limits import row
from tests.tiny import CLOSE, every_sequence, tiny

LIBRARY = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.mark.parametrize("cell", LIBRARY)
def test_three_layers_are_the_librarys(cell: str) -> None:
    model = row("recurrent_lm", cell=cell, emission="vector", norm="none", num_layers=3)
    theirs = LIBRARY[cell](4, 4, num_layers=3, batch_first=True)
    with torch.no_grad():
        for number, layer in enumerate((model.cell, *model.upper)):
            for name, weight in layer.w.named_parameters():
                theirs.get_parameter(f"{name}_l{number}").copy_(weight)
    x = model.embedding(every_sequence(model.task)[0][:, :4])
    ones = torch.ones(3, len(x), 4)
    h = theirs(x, (ones, ones) if cell == "lstm" else ones)[0]
    dense = torch.log_softmax(h[:, -1] @ model.embedding.weight.T, dim=-1)
    found = model.next_log_prob(every_sequence(model.task)[0][:, :4])
    assert_close(found.detach(), dense.detach(), CLOSE, "P(v | s_<t)")


def test_the_first_layer_starts_as_the_only_one_would() -> None:
    one, three = tiny("rnn_lm"), tiny("rnn_lm", num_layers=3)
    for name, weight in one.named_parameters():
        assert three.get_parameter(name).equal(weight)
    first, *others = [layer.w.weight_hh for layer in (three.cell, *three.upper)]
    assert not any(other.equal(first) for other in others)


def test_each_layer_has_a_start_and_a_state_of_its_own() -> None:
    model = tiny("lstm_lm", num_layers=3, starts=2)
    assert model.starts.vectors.shape == (2, 3 * 2 * 4)
    assert model.state_size == 2 * (3 * 2 * 4) + 2  # from each start, and its evidence
    seen = model.next_log_prob(torch.zeros(1, 1, dtype=torch.int64) + 1)
    gradient = torch.autograd.grad(seen[0, 0], model.starts.vectors)[0]
    assert (gradient.unflatten(1, (6, 4)).abs().amax(2) > 0).all()
    attended = tiny("recurrent_lm", cell={"name": "mgru", "carry": "bilinear"}, num_layers=2)
    assert attended.state_size is None


def test_a_language_model_of_two_directions_is_refused() -> None:
    with pytest.raises(UserError, match="bidirectional=True: a language model may not read"):
        zoo.config("recurrent_lm", bidirectional=True)
