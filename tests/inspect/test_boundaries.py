"""Segment boundaries of a hierarchical LSTM."""

import torch

from lmzoo.contract import START
from lmzoo.functional.normalise import normalise_sequence
from lmzoo.inspect.boundaries import boundaries, has_boundaries
from lmzoo.laws.support import assert_close
from tests.tiny import tiny

IDS, TOKENS = [START, 0, 2, 1], ["<start>", "a", "c", "b"]


def test_boundaries_equal_those_in_the_state_after_each_token() -> None:
    model = tiny("hm_lstm", cell={"depth": 3}, length=12)
    with torch.no_grad():  # untrained layers end a segment at every token
        for layer in model.cell.layers[:-1]:
            layer.bias[-1] = 0
            layer.own[-1] *= torch.tensor([30.0, -30.0, 30.0, -30.0])
    ids, tokens = IDS * 3, TOKENS * 3
    result = boundaries(model, ids, tokens)
    assert model.training
    cell, read = model.cell, torch.tensor([ids[:-1]])
    inputs = normalise_sequence(model.embedding(read), model.config.norm)
    state, expected = cell.initial_state(torch.ones(1, cell.num_state_vectors * 4)), []
    with torch.no_grad():
        for projected in cell.project(inputs).unbind(1):
            state = cell.step(projected, state)[1]
            expected.append(state[-1][0])
    assert_close(result.ended, torch.stack(expected).T, 0, "ended")
    assert set(result.ended.flatten().tolist()) == {0.0, 1.0}
    assert result.tokens == tuple(f"{i} {token}" for i, token in enumerate(tokens[:-1]))


def test_layers_are_in_order_from_the_lowest() -> None:
    model = tiny("hm_lstm", cell={"depth": 3})
    with torch.no_grad():
        for layer, to in zip(model.cell.layers, (100.0, -100.0), strict=False):
            layer.bias[-1] = to
    result = boundaries(model, IDS, TOKENS)
    assert result.layers == ("layer 1", "layer 2")
    assert result.ended.tolist() == [[1.0] * 3, [0.0] * 3]


def test_boundaries_need_several_layers_and_one_initial_state() -> None:
    assert has_boundaries(tiny("hm_lstm"))
    assert has_boundaries(tiny("hm_lstm", starts=1))
    assert not has_boundaries(tiny("hm_lstm", starts=2))
    assert not has_boundaries(tiny("hm_lstm", cell={"depth": 1}))
    assert not has_boundaries(tiny("gru"))
