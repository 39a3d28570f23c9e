"""The one-hot model equals PyTorch's RNN."""

from typing import Any

import torch
from torch import nn

from lmzoo.laws.support import assert_close, log_prob
from tests.models.equivalence import small
from tests.tiny import CLOSE, every_sequence


def test_scores_equal_the_pytorch_rnn_on_one_hot_vectors() -> None:
    model: Any = small("onehot_embedding").eval()
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
