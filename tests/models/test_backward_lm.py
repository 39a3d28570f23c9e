"""Reading from right to left: what it equals, what it sums to, what it sees (S4)."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import START
from lmzoo.errors import UserError
from tests.laws.support import assert_close, log_prob, next_log_prob
from tests.models.limits import LENGTH, VOCAB, row
from tests.tiny import CLOSE, SAME, batch, every_sequence

READERS = ["recurrent_lm", "aggregate_markov", "latent_parent_positional"]


@pytest.mark.parametrize("reader", READERS)
def test_scores_are_the_readers_of_the_sequence_turned_round(reader: str) -> None:
    model = row("backward_lm", reader=reader)
    tokens, lengths = batch(model.task, count=20)
    found = log_prob(model, tokens, lengths)
    for b, n in enumerate(lengths.tolist()):
        turned = torch.cat([tokens[b, :1], tokens[b, 1:n].flip(0)])[None]
        expected = log_prob(model.reader, turned, torch.tensor([n]))[0]
        assert_close(found[b, 1:n], expected[1:].flip(0), CLOSE, f"scores of row {b}")
        assert not found[b, n:].any()


@pytest.mark.parametrize("length", [2, 3, 4])
def test_sequences_of_any_one_length_sum_to_one(length: int) -> None:
    model = row("backward_lm", reader={"starts": 2})
    tokens, _ = every_sequence(model.task)
    tokens = tokens[(tokens[:, length:] == 0).all(1)]  # pads beyond
    lengths = torch.full((len(tokens),), length)
    assert len(tokens) == VOCAB ** (length - 1)
    total = log_prob(model, tokens, lengths).sum(1).exp().sum()
    assert_close(total, torch.ones(()), CLOSE, "total")


def test_a_token_sees_what_follows_it_and_nothing_before_it() -> None:
    model = row("backward_lm")
    tokens, lengths = every_sequence(model.task)
    before = log_prob(model, tokens, lengths)
    for u in range(1, LENGTH):
        changed = tokens.clone()
        changed[:, u] = (changed[:, u] + 1) % VOCAB
        after = log_prob(model, changed, lengths)
        assert_close(after[:, u + 1 :], before[:, u + 1 :], SAME, f"scores after token {u}")
        assert ((after[:, 1:u] - before[:, 1:u]).abs().amax(0) > 1e-3).all()


def test_a_prefix_is_what_has_been_read_from_the_end() -> None:
    model = row("backward_lm")
    tokens, lengths = every_sequence(model.task)
    scores = log_prob(model, tokens, lengths)
    read = torch.cat([torch.full_like(tokens[:, :1], START), tokens[:, 1:].flip(1)], dim=1)
    for t in range(1, LENGTH):
        found = next_log_prob(model, read[:, :t]).gather(1, read[:, t : t + 1])[:, 0]
        assert_close(found, scores[:, LENGTH - t], CLOSE, f"after {t} tokens read")


def test_it_is_not_causal_and_reads_only_what_is() -> None:
    assert not row("backward_lm").causal
    with pytest.raises(UserError, match="'backward_lm' cannot be read backwards"):
        row("backward_lm", reader="backward_lm")


def test_the_reader_may_be_any_config() -> None:
    config = zoo.config("backward_lm", reader={"cell": "lstm", "width": 8})
    assert config.reader.width == 8
    assert zoo.config("backward_lm", reader="markov_mlp").reader.window == 4
