"""Latent autoregressive model: a recurrence with a skip connection."""

import torch

from lmzoo.laws.support import assert_close, next_log_prob
from tests.models.equivalence import small
from tests.tiny import CLOSE, every_sequence


def test_skip_reads_the_last_token_only() -> None:
    model = small("latent_ar")
    prefix = every_sequence(model.task)[0][:, :4]
    x = model.embedding(prefix)
    h = model.cell.scan(x, torch.ones(len(x), 4))[:, -1]
    expected = torch.log_softmax(
        (h + x[:, -1] @ model.skip.weight.T) @ model.embedding.weight.T, dim=1
    )
    assert_close(next_log_prob(model, prefix), expected.detach(), CLOSE, "P(v | s_<t)")
