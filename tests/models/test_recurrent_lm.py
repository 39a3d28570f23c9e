"""Recurrent language model: inputs, stacked layers and decoding state."""

from typing import Any

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.functional.normalise import Norm, normalise_sequence
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.laws.support import assert_close, log_prob
from tests.models.equivalence import small
from tests.tiny import CLOSE, FINE, batch, every_sequence, tiny

FEW, MANY = torch.tensor([[1, 3]]), torch.tensor([[1, 2, 3, 0], [3, 3, 1, 2]])


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("tokens", [FEW, MANY], ids=["few", "many"])
def test_inputs_per_vocabulary_entry_equal_inputs_per_position(
    norm: Norm, tokens: torch.Tensor
) -> None:
    model = tiny("recurrent_lm", vocab=4, norm=norm.value).double()
    assert (tokens.numel() > model.task.vocab) == (tokens is MANY)
    weight = model.embedding.weight
    ours, plain = model._inputs(tokens), normalise_sequence(model.embedding(tokens), norm)
    assert isinstance(ours, TokenInputs) == (tokens is MANY and not norm.over_time)
    ours = ours.vectors() if isinstance(ours, TokenInputs) else ours
    assert_close(ours.detach(), plain.detach(), FINE, "inputs")
    upstream = torch.randn(plain.shape, dtype=torch.float64)
    first, second = (torch.autograd.grad(x, weight, upstream)[0] for x in (ours, plain))
    assert_close(first, second, FINE, "gradient")


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("starts", [0, 3])
def test_scores_from_token_ids_equal_scores_from_vectors(
    starts: int, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("recurrent_lm", vocab=4, starts=starts, num_layers=layers).double()
    tokens, lengths = torch.cat([MANY, MANY]), torch.tensor([4, 3, 4, 2])
    scores = model.score_tokens(tokens, lengths)
    words = model._inputs(tokens[:, :-1])
    assert isinstance(words, TokenInputs)
    monkeypatch.setattr(model, "_inputs", lambda tokens, **_: words.vectors())
    assert_close(scores, model.score_tokens(tokens, lengths), FINE, "scores")


LIBRARY = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.mark.parametrize("cell", LIBRARY)
def test_three_layers_equal_the_pytorch_module(cell: str) -> None:
    model = small("recurrent_lm", cell=cell, emission="vector", norm="none", num_layers=3)
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


@pytest.mark.parametrize("name", ["recurrent_lm", "lstm_lm"])
def test_bidirectional_language_model_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="bidirectional=True: a language model may not read"):
        zoo.config(name, bidirectional=True)


@pytest.mark.parametrize("cell", [*CELLS, {"name": "block", "inner": "gla"}], ids=str)
def test_a_model_starts_from_zeros_or_ones(cell: Any) -> None:
    """`zeros` and `ones` set h_0 of every cell; without them it is as before."""
    for start, value in (("zeros", 0.0), ("ones", 1.0)):
        model: Any = tiny("recurrent_lm", cell=cell, start=start)
        h, *_ = model.cell.initial_state(model._start_vectors())
        assert (h == value).all()
        assert log_prob(model, *batch(model.task)).isfinite().all()
    plain: Any = tiny("recurrent_lm", cell=cell)
    assert "start" not in to_dict(plain.config)
    assert (plain._start_vectors() == 1).all()


def test_a_learned_start_is_one_start() -> None:
    configs = [tiny("recurrent_lm", **f).config for f in ({"start": "learned"}, {"starts": 1})]
    assert configs[0] == configs[1]
    with pytest.raises(UserError, match="starts=2 learns initial states, but start=zeros sets one"):
        tiny("recurrent_lm", starts=2, start="zeros")
