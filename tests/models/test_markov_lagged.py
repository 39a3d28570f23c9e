"""Lagged aggregate Markov models (DLM20, 21, 22, 24)."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.functional.normalise import Norm, normalise_vectors
from tests.laws.support import assert_close, next_log_prob
from tests.models.equivalence import assert_same_model, copy_weights, set_weights, small
from tests.tiny import CLOSE, every_sequence

PLAIN = "lagged_aggregate_markov"


@pytest.mark.parametrize("pad", ["ones", "unit"])
def test_scores_follow_the_equation(pad: str) -> None:
    model = small(PLAIN, window=3, pad=pad)
    tokens, _ = every_sequence(model.task)
    table = model.embedding.weight
    before = torch.full((len(tokens), 1, 4), 1.0 if pad == "ones" else 0.5)
    for t in range(1, 5):
        context = [table[tokens[:, t - j]] if t >= j else before[:, 0] for j in (1, 2, 3)]
        terms = (
            lag(c) / 2 ** (j + 1)
            for j, (lag, c) in enumerate(zip(model.lags, context, strict=True))
        )
        weights = torch.softmax(sum(terms), dim=1)
        expected = weights @ torch.softmax(model.words.means @ table.T, dim=1)
        assert_close(
            next_log_prob(model, tokens[:, :t]).exp(), expected.detach(), CLOSE, f"after {t}"
        )


def test_free_table_can_equal_the_tied_table() -> None:
    free, tied = small(f"{PLAIN}_free"), small(PLAIN)
    copy_weights(free, tied, *(name for name, _ in tied.named_parameters() if "words" not in name))
    set_weights(free, {"words.logits": tied.words.means @ tied.embedding.weight.T})
    assert_same_model(free, tied)


def test_pad_vector_is_not_normalised() -> None:
    """The pad vector has length 1; normalised token vectors have length √E."""
    model = small(f"{PLAIN}_sphere", window=2)
    prefix = every_sequence(model.task)[0][:1, :1]
    x = normalise_vectors(model.embedding(prefix[:, 0]), Norm.RMS)
    logits = model.lags[0](x) / 2 + model.lags[1](torch.full((1, 4), 0.5)) / 4
    actual = model.log_weights(prefix)[:, 0]
    assert_close(actual.detach(), torch.log_softmax(logits, dim=1).detach(), CLOSE, "after <start>")


def test_free_table_with_scales_is_refused() -> None:
    with pytest.raises(UserError, match="scaled=True with words=free"):
        zoo.config(f"{PLAIN}_free", scaled=True)
