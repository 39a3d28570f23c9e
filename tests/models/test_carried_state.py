"""A recurrent model with carried state scores blocks as one text; a lost state is detected."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.blocks.carried_state import carries_state
from lmzoo.contract import LanguageModel
from lmzoo.laws.state import law_blocks_with_carried_state_equal_one_pass
from lmzoo.models.recurrent_lm import RecurrentLM
from tests.tiny import row_names, tiny

LAW = law_blocks_with_carried_state_equal_one_pass
SIZES: list[dict[str, Any]] = [
    {"cell": "lstm", "num_layers": 2},
    {"cell": "mgu", "starts": 3, "num_layers": 2},
    {"cell": "gru", "starts": 2, "norm": "time_std_causal"},
    {"cell": "rnn", "starts": 1},
    {"cell": "lstm_peephole"},
]


def resets(fault: str) -> type[RecurrentLM]:
    """Return the model with one part of the state lost between two blocks."""

    class Faulty(RecurrentLM):
        def score_block(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
            if state is not None:
                anew = self._begin_block(len(tokens))
                state = state._replace(**{fault: getattr(anew, fault)})
            return super().score_block(tokens, state)

    return Faulty


def build(cls: type[RecurrentLM], fields: dict[str, Any]) -> LanguageModel:
    model = tiny("recurrent_lm", **fields)
    return cls(model.config, model.task)


@pytest.mark.parametrize(
    ("fault", "fields"),
    [
        *(("layers", fields) for fields in SIZES),
        ("evidence", {"cell": "mgu", "starts": 3}),
        ("input_stats", {"norm": "time_std_causal"}),
    ],
)
def test_a_lost_part_of_the_state_is_detected(fault: str, fields: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="between one pass and a computation step by step"):
        LAW(build(resets(fault), fields))


def test_the_rows_with_a_recurrent_state_carry_it() -> None:
    carrying = {name for name in row_names() if carries_state(tiny(name))}
    recurrent = {name for name in row_names() if zoo.row(name).family == "recurrent"}
    assert recurrent - carrying == set()
    assert not carrying & {"modern_decoder", "hmm", "ngram_count", "backward_lm", "seq2seq"}


def test_a_state_that_grows_is_not_carried() -> None:
    prior = {"name": "mgru", "carry": "prior"}
    assert not carries_state(tiny("recurrent_lm", norm="time_std"))
    assert tiny("recurrent_lm", cell=prior).state_size is None
    assert not carries_state(tiny("recurrent_lm", cell=prior))


@pytest.mark.parametrize("dropout", ["dropout_input", "dropout_output", "dropout_recurrent"])
def test_dropout_acts_in_training_only(dropout: str) -> None:
    fields: dict[str, Any] = {dropout: 0.5}
    model = tiny("recurrent_lm", cell="lstm", **fields)
    assert isinstance(model, RecurrentLM)
    tokens = torch.randint(3, (4, 4))
    torch.manual_seed(0)
    first, second = (model.train().score_block(tokens)[0] for _ in range(2))
    assert not first.equal(second)
    first, second = (model.eval().score_block(tokens)[0] for _ in range(2))
    assert first.equal(second)


def test_gradients_stop_at_the_beginning_of_a_block() -> None:
    """The gradient of a block equals that of a text that begins with the state as a constant."""
    model = tiny("recurrent_lm", cell="gru").double()
    assert isinstance(model, RecurrentLM)
    first, second = torch.randint(3, (2, 5, 4), generator=torch.Generator().manual_seed(0))
    _, state = model.score_block(first)
    model.zero_grad()
    model.score_block(second, state)[0].sum().backward()
    carried = [weight.grad for weight in model.parameters()]
    constant = dataclasses.replace(model.config, starts=1)
    other = RecurrentLM(constant, model.task).double()
    other.load_state_dict(model.state_dict(), strict=False)
    assert other.starts is not None
    for row in range(len(second)):  # each text has an initial state of its own
        with torch.no_grad():
            other.starts.vectors.copy_(state.layers[0][0][row : row + 1])
        other.score_block(second[row : row + 1])[0].sum().backward()
    known = dict(other.named_parameters())
    for (name, _), gradient in zip(model.named_parameters(), carried, strict=True):
        torch.testing.assert_close(gradient, known[name].grad)
