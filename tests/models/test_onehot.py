"""One-hot RNN: equality with PyTorch's RNN and with learned embeddings."""

from typing import Any

import torch
from torch import nn

from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import small
from tests.tiny import CLOSE, batch, every_sequence


def onehot() -> Any:
    return small("onehot_embedding").eval()


def test_scores_equal_the_pytorch_rnn_on_one_hot_vectors() -> None:
    model = onehot()
    tokens, lengths = every_sequence(model.task)
    library = nn.RNN(model.task.vocab, model.config.width, batch_first=True)
    with torch.no_grad():
        library.weight_ih_l0.copy_(model.read.weight)
        library.weight_hh_l0.copy_(model.carry.weight)
        library.bias_ih_l0.copy_(model.read.bias)
        library.bias_hh_l0.zero_()
        words = nn.functional.one_hot(tokens, model.task.vocab).float()
        h, _ = library(words[:, :-1], torch.ones(1, len(tokens), model.config.width))
        expected = model.write(h).log_softmax(-1)
    expected = (expected * words[:, 1:]).sum(-1)
    assert_close(log_prob(model, tokens, lengths)[:, 1:], expected, CLOSE, "scores")


def test_columns_of_the_input_matrix_act_as_embeddings() -> None:
    """An embedding table with the columns of W_2 as rows gives the same distribution."""
    model = onehot()
    tokens, _ = batch(model.task)
    table = nn.Embedding.from_pretrained(model.read.weight.T.detach())
    with torch.no_grad():
        h = torch.ones(len(tokens), model.config.width)
        for x in table(tokens).unbind(1):
            h = torch.tanh(x + model.read.bias + h @ model.carry.weight.T)
        expected = model.write(h).log_softmax(-1)
    assert_close(next_log_prob(model, tokens), expected, CLOSE, "next")


def test_number_of_parameters_without_tying() -> None:
    model = onehot()
    v, h = model.task.vocab, model.config.width
    assert sum(p.numel() for p in model.parameters()) == 2 * v * h + h * h + h + v
