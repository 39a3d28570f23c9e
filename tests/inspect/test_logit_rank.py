"""The rank of the logits: bounded by the width for a tied softmax, and only for it."""

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.inspect.logit_rank import centred_logits, logit_rank
from lmzoo.laws.tiny import batch
from lmzoo.zoo import build, config
from tests.laws.support import assert_close
from tests.models.equivalence import small
from tests.tiny import FINE, every_sequence

TASK, WIDTH = Task(vocab=30, length=6), 5


def model_of(name: str, **fields: object) -> torch.nn.Module:
    return build(config(name, width=WIDTH, **fields), TASK)


@pytest.mark.parametrize("name", ["rnn_lm", "lstm_lm", "gated_convolution"])
def test_a_softmax_has_the_rank_of_its_width_whatever_computes_it(name: str) -> None:
    found = logit_rank(model_of(name), *batch(TASK, count=40))
    assert found.rank == WIDTH
    assert found.contexts > WIDTH
    assert 1 < found.effective <= WIDTH
    assert found.energy <= WIDTH


def test_a_layer_norm_before_the_softmax_costs_one_direction() -> None:
    """Before training, its output has the mean 0."""
    found = logit_rank(model_of("transformer_decoder"), *batch(TASK, count=40))
    assert found.rank == WIDTH - 1


@pytest.mark.parametrize("name", ["hamming_emission", "rbf_emission", "lstm_mixture"])
def test_other_emissions_exceed_the_width(name: str) -> None:
    assert logit_rank(model_of(name), *batch(TASK, count=40)).rank > WIDTH + 2


def test_one_component_gives_one_distribution() -> None:
    found = logit_rank(model_of("gru_mixture", emission={"components": 1}), *batch(TASK, count=40))
    assert (found.rank, found.energy) == (1, 1)
    assert found.effective == pytest.approx(1)


@torch.no_grad()
def test_the_matrix_has_one_centred_row_for_each_prefix() -> None:
    model = small("lstm_lm")
    tokens, lengths = every_sequence(model.task)
    matrix = centred_logits(model, tokens, lengths)
    assert len(matrix) == 1 + 3 + 9 + 27
    assert_close(matrix.mean(1), torch.zeros(40).double(), FINE, "row means")
    expected = model.double().eval().next_log_prob(tokens[::27, :2])
    assert_close(matrix[1:4], expected - expected.mean(1, keepdim=True), FINE, "second position")
    assert next(small("lstm_lm").parameters()).dtype == torch.float32  # a copy is converted
    short = centred_logits(model, tokens, torch.full_like(lengths, 3))
    assert_close(short, matrix[:4], FINE, "prefixes of shorter sequences")


@pytest.mark.parametrize("name", ["gru_autoencoder", "backward_lm", "seq2seq"])
def test_a_model_that_is_no_density_from_left_to_right_is_refused(name: str) -> None:
    model = small(name)
    with pytest.raises(UserError, match="does not predict the next token from a prefix"):
        logit_rank(model, *batch(model.task))


def test_infinite_logits_are_refused() -> None:
    model = small("ngram_count", smoothing="none")
    with pytest.raises(UserError, match="probability 0"):
        logit_rank(model, *every_sequence(model.task))
