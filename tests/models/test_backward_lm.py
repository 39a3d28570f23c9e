"""The backward language model without `<end>`."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import START
from lmzoo.errors import UserError
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.equivalence import LENGTH, VOCAB, small_model
from tests.tiny import CLOSE, SAME, batch, every_sequence

READERS = ["recurrent_lm", "aggregate_markov", "latent_parent_positional"]


@pytest.mark.parametrize("reader", READERS)
def test_scores_are_the_readers_scores_of_the_reversed_sequence(reader: str) -> None:
    model = small_model("backward_lm", reader=reader)
    tokens, lengths = batch(model.task, count=20)
    actual = log_prob(model, tokens, lengths)
    for b, n in enumerate(lengths.tolist()):
        reversed_tokens = torch.cat([tokens[b, :1], tokens[b, 1:n].flip(0)])[None]
        expected = log_prob(model.reader, reversed_tokens, torch.tensor([n]))[0]
        assert_close(actual[b, 1:n], expected[1:].flip(0), CLOSE, f"scores of row {b}")
        assert not actual[b, n:].any()


@pytest.mark.parametrize("length", [2, 3, 4])
def test_probabilities_of_sequences_of_one_length_sum_to_one(length: int) -> None:
    model = small_model("backward_lm", reader={"starts": 2})
    tokens, _ = every_sequence(model.task)
    tokens = tokens[(tokens[:, length:] == 0).all(1)]  # pads after the length
    lengths = torch.full((len(tokens),), length)
    assert len(tokens) == VOCAB ** (length - 1)
    total = log_prob(model, tokens, lengths).sum(1).exp().sum()
    assert_close(total, torch.ones(()), CLOSE, "total")


def test_score_depends_on_later_tokens_only() -> None:
    model = small_model("backward_lm")
    tokens, lengths = every_sequence(model.task)
    before = log_prob(model, tokens, lengths)
    for u in range(1, LENGTH):
        changed = tokens.clone()
        changed[:, u] = (changed[:, u] + 1) % VOCAB
        after = log_prob(model, changed, lengths)
        assert_close(after[:, u + 1 :], before[:, u + 1 :], SAME, f"scores after token {u}")
        assert ((after[:, 1:u] - before[:, 1:u]).abs().amax(0) > 1e-3).all()


def test_prefix_is_the_sequence_read_from_the_end() -> None:
    model = small_model("backward_lm")
    tokens, lengths = every_sequence(model.task)
    scores = log_prob(model, tokens, lengths)
    read = torch.cat([torch.full_like(tokens[:, :1], START), tokens[:, 1:].flip(1)], dim=1)
    for t in range(1, LENGTH):
        actual = next_log_prob(model, read[:, :t]).gather(1, read[:, t : t + 1])[:, 0]
        assert_close(actual, scores[:, LENGTH - t], CLOSE, f"after {t} tokens read")


def test_backward_model_is_not_causal_and_needs_a_causal_reader() -> None:
    assert not small_model("backward_lm").causal
    with pytest.raises(UserError, match="'backward_lm' cannot read backwards"):
        small_model("backward_lm", reader="backward_lm")


def test_reader_can_be_any_model_config() -> None:
    config = zoo.config("backward_lm", reader={"cell": "lstm", "width": 8})
    assert config.reader.width == 8
    assert zoo.config("backward_lm", reader="markov_mlp").reader.window == 4
