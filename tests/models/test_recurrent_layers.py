"""Stacked cells equal PyTorch's modules."""

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.errors import UserError
from tests.laws.support import assert_close
from tests.models.equivalence import small_model
from tests.tiny import CLOSE, every_sequence, tiny

LIBRARY = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.mark.parametrize("cell", LIBRARY)
def test_three_layers_equal_the_pytorch_module(cell: str) -> None:
    model = small_model("recurrent_lm", cell=cell, emission="vector", norm="none", num_layers=3)
    theirs = LIBRARY[cell](4, 4, num_layers=3, batch_first=True)
    with torch.no_grad():
        for number, layer in enumerate((model.cell, *model.upper)):
            for name, weight in layer.w.named_parameters():
                theirs.get_parameter(f"{name}_l{number}").copy_(weight)
    x = model.embedding(every_sequence(model.task)[0][:, :4])
    ones = torch.ones(3, len(x), 4)
    h = theirs(x, (ones, ones) if cell == "lstm" else ones)[0]
    dense = torch.log_softmax(h[:, -1] @ model.embedding.weight.T, dim=-1)
    actual = model.next_log_prob(every_sequence(model.task)[0][:, :4])
    assert_close(actual.detach(), dense.detach(), CLOSE, "P(v | s_<t)")


def test_first_layer_has_the_initial_weights_of_the_single_layer_model() -> None:
    single, three = tiny("rnn_lm"), tiny("rnn_lm", num_layers=3)
    for name, weight in single.named_parameters():
        assert three.get_parameter(name).equal(weight)
    first, *others = [layer.w.weight_hh for layer in (three.cell, *three.upper)]
    assert not any(other.equal(first) for other in others)


def test_each_layer_has_its_own_initial_state() -> None:
    model = tiny("lstm_lm", num_layers=3, starts=2)
    assert model.starts.vectors.shape == (2, 3 * 2 * 4)
    assert model.state_size == 2 * (3 * 2 * 4) + 2  # per start: states, and evidence
    scores = model.next_log_prob(torch.zeros(1, 1, dtype=torch.int64) + 1)
    gradient = torch.autograd.grad(scores[0, 0], model.starts.vectors)[0]
    assert (gradient.unflatten(1, (6, 4)).abs().amax(2) > 0).all()
    attended = tiny("recurrent_lm", cell={"name": "mgru", "carry": "bilinear"}, num_layers=2)
    assert attended.state_size is None


def test_bidirectional_language_model_is_refused() -> None:
    with pytest.raises(UserError, match="bidirectional=True: a language model may not read"):
        zoo.config("recurrent_lm", bidirectional=True)
