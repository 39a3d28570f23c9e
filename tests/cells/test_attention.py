"""Softmax attention with memory: its equations position by position in float64."""

import math

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.attention import AttentionCell, Memory, SoftmaxAttention
from lmzoo.cells.base import CELLS
from lmzoo.laws.cells import UNCUT_LAWS
from lmzoo.laws.probes import disturb
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make
from tests.tiny import FINE

PARTS = [*([part.value] for part in Memory), ["forget", "sinks", "output_gate", "path"]]
"""What `memory` can be, and everything that goes together."""


def by_hand(a: SoftmaxAttention, u: Tensor, i: int) -> Tensor:
    """Return y_i from the inputs (t, E), with loops over heads and positions."""
    size, read = a.size, []
    for head in range(a.heads):
        group = head // (a.heads // a.groups)
        rows = slice(head * size, (head + 1) * size)
        shared = slice(group * size, (group + 1) * size)
        q = a.query.weight[rows] @ u[i]
        first = max(0, i - a.window + 1) if a.window else 0
        logits = []
        for j in range(first, i + 1):
            k = a.key.weight[shared] @ u[j]
            if a.rotated:
                logits.append(turned(q, i) @ turned(k, j) / size**0.5)
                continue
            for s in range(j + 1, i + 1) if Memory.PATH in a.memory else ():
                w = a.path.weight[shared] @ u[s]
                w = w / w.norm()
                rate = a.path_rate.weight[group] @ u[s] + a.path_rate.bias[group]
                k = k - 2 * torch.sigmoid(rate) * (w @ k) * w
            logits.append(q @ k / size**0.5)
        if Memory.FORGET in a.memory:
            for n, j in enumerate(range(first, i + 1)):
                for s in range(j + 1, i + 1):
                    f = torch.sigmoid(a.forget.weight[head] @ u[s] + a.forget.bias[head])
                    logits[n] = logits[n] + f.log()
        if Memory.STICK_BREAKING in a.memory:
            left, weights = torch.ones((), dtype=u.dtype), [torch.zeros((), dtype=u.dtype)]
            for logit in reversed(logits[:-1]):  # the stick is broken from the query back
                weights.insert(0, left * torch.sigmoid(logit))
                left = left * (1 - torch.sigmoid(logit))
        else:
            total = sum(map(torch.exp, logits)) + (
                a.sink[head].exp() if Memory.SINKS in a.memory else 0
            )
            weights = [logit.exp() / total for logit in logits]
        values = [a.value.weight[shared] @ u[j] for j in range(first, i + 1)]
        read.append(sum(w * v for w, v in zip(weights, values, strict=True)))
    o = torch.cat(read)
    if Memory.OUTPUT_GATE in a.memory:
        o = o * torch.sigmoid(a.output_gate.weight @ u[i])
    return a.output.weight @ o


def turned(z: Tensor, t: int) -> Tensor:
    """Rotate pairs of numbers as complex numbers."""
    pairs = torch.view_as_complex(z.view(-1, 2).contiguous())
    angles = [t * 10000 ** (-2 * i / len(z)) for i in range(len(pairs))]
    turns = torch.tensor(
        [complex(math.cos(a), math.sin(a)) for a in angles], dtype=torch.complex128
    )
    return torch.view_as_real(pairs * turns).flatten()


def attention(length: int = 6, **fields) -> AttentionCell:
    cell = make("attention", width=6, length=length, heads=2, **fields)
    assert isinstance(cell, AttentionCell)
    disturb(cell)
    return cell


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("memory", [[], *PARTS], ids=str)
def test_the_outputs_are_those_of_the_equations(memory: list[str], window: int) -> None:
    cell = attention(memory=memory, window=window)
    x, start = inputs(cell)
    with torch.no_grad():
        expected = torch.stack([by_hand(cell.w, x[0], i) for i in range(6)])
        assert_close(cell.scan(x, start)[0], expected, FINE, "outputs")
    for law in UNCUT_LAWS:
        law(attention(length=4, memory=memory, window=window))


def test_parts_that_do_nothing_are_plain_attention() -> None:
    plain, x = attention(cuts=["rotation"]), inputs(attention())[0]
    for part, neutral in (("forget", {"bias": 100.0}), ("path", {"bias": -100.0})):
        cell = attention(memory=[part], cuts=["rotation"])
        with torch.no_grad():
            own = dict(cell.named_parameters())
            for name, weight in plain.named_parameters():
                own[name].copy_(weight)
            module = cell.w.forget if part == "forget" else cell.w.path_rate
            module.weight.zero_()
            module.bias.fill_(neutral["bias"])
        start = x.new_zeros(len(x), 0)
        assert_close(cell.scan(x, start), plain.scan(x, start), FINE, part)


def test_equal_functions_have_equal_configs_and_wrong_parts_are_refused() -> None:
    same = [{"memory": ["path"]}, {"memory": [4], "cuts": ["rotation"]}]
    assert len({str(CELLS.parse({"name": "attention", **fields})) for fields in same}) == 1
    with pytest.raises(UserError, match="stick_breaking has no softmax for forget, sinks"):
        CELLS.parse({"name": "attention", "memory": [0, 1, 2]})
    with pytest.raises(UserError, match="has no initial state to learn"):
        attention().constrain_start(torch.zeros(2, 6))
