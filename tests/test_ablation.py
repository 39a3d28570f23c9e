"""Cuts of trained models, against cells that are written here without the package."""

from typing import Any

import pytest
import torch

import lmzoo
from lmzoo import ablation
from lmzoo.data.batches import epoch_batches
from lmzoo.lab.store.records import ABLATIONS
from lmzoo.train.ablation import extra_data

CORPUS = {"name": "captions", "train": 50, "valid": 5, "test": 30}
STEPS = 3
CUTS = {"mgu": "state_to_gate (1)", "gru": "state_to_update (4)", "min_gru": "input_to_gate (0)"}
TERM = {"mgu": "hf", "gru": "hz", "min_gru": "xz"}
"""The product that the cut removes."""


def as_it_is(name, value):
    return value


def mgu(w, x, h, term):
    f = torch.sigmoid(term("xf", x @ w["xf"]) + term("hf", h @ w["hf"]) + w["bf"])
    c = torch.tanh(term("xh", x @ w["xh"]) + term("hh", (f * h) @ w["hh"]) + w["bh"])
    return (1 - f) * h + f * c


def gru(w, x, h, term):
    read = dict(zip("rzn", (w["weight_ih"] @ x.T).chunk(3), strict=True))
    state = dict(zip("rzn", (w["weight_hh"] @ h.T).chunk(3), strict=True))
    bias_x = dict(zip("rzn", w["bias_ih"].chunk(3), strict=True))
    bias_h = dict(zip("rzn", w["bias_hh"].chunk(3), strict=True))

    def gate(g, factor: Any = 1.0):
        own = term(f"h{g}", state[g].T) + bias_h[g]
        return term(f"x{g}", read[g].T) + bias_x[g] + factor * own

    r = torch.sigmoid(gate("r"))
    z = torch.sigmoid(gate("z"))
    return (1 - z) * torch.tanh(gate("n", r)) + z * h


def min_gru(w, x, h, term):
    z = torch.sigmoid(term("xz", x @ w["xz"]) + w["bz"])
    u = term("xh", x @ w["xh"]) + w["bh"]
    c = torch.where(u >= 0, u + 0.5, torch.sigmoid(u))
    return (1 - z) * h + z * c


START = {"mgu": 1.0, "gru": 1.0, "min_gru": 0.0}
STEP = {"mgu": mgu, "gru": gru, "min_gru": min_gru}


def norm(x):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5)


def nll(cell, w, tokens, lengths, term=as_it_is):
    """Return −log P of each token, 0 beyond the lengths."""
    table = w["weight"]
    h = torch.full((len(tokens), table.shape[1]), START[cell])
    values = []
    for t in range(tokens.shape[1] - 1):
        h = STEP[cell](w, norm(table[tokens[:, t]]), h, term)
        scores = torch.log_softmax(norm(h) @ table.T, -1)
        values.append(-scores.gather(1, tokens[:, t + 1, None])[:, 0])
    scored = torch.arange(1, tokens.shape[1]) < lengths[:, None]
    return torch.stack(values, 1) * scored


def groups(part):
    for length in part.lengths.unique():
        rows = (part.lengths == length).nonzero().flatten()
        yield part.tokens[rows, :length], part.lengths[rows]


def mean_product(cell, w, part):
    seen = []

    def keep(name, value):
        if name == TERM[cell]:
            seen.append(value)
        return value

    for tokens, lengths in groups(part):
        nll(cell, w, tokens, lengths, keep)
    return torch.cat(seen).mean(0)


def with_other(cell, w, tokens, lengths):
    """Return the loss with the products of the sequence before."""
    kept = []

    def keep(name, value):
        if name == TERM[cell]:
            kept.append(value)
        return value

    nll(cell, w, tokens.roll(1, 0), lengths, keep)
    other = iter(kept)
    return nll(cell, w, tokens, lengths, lambda n, v: next(other) if n == TERM[cell] else v)


def trained_on(cell, w, model, term):
    """Return the weights after some steps of Adam."""
    data = extra_data(model.corpus, 16, STEPS)
    w = {name: value.clone().requires_grad_() for name, value in w.items()}
    adam = torch.optim.Adam(w.values(), lr=0.02)
    for rows in epoch_batches(data.lengths, 16, seed=5, epoch=0):
        adam.zero_grad()
        values = nll(cell, w, data.tokens[rows], data.lengths[rows], term)
        (values.sum() / (data.lengths[rows] - 1).sum()).backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        adam.step()
    return {name: value.detach() for name, value in w.items()}


SLOW = [pytest.param(cell, marks=pytest.mark.slow) for cell in ("gru", "min_gru")]


@pytest.fixture(params=["mgu", *SLOW])
def trained(request, tmp_path):
    cell = request.param
    fields = {"cell": cell, "emission": "vector", "width": 6}
    recipe = {"lr": 0.02, "batch": 16}
    model = lmzoo.build("recurrent_lm", CORPUS, recipe=recipe, seed=5, **fields)
    model.fit(1)
    state = model.module.state_dict()
    w = {name.rpartition(".")[2]: value for name, value in state.items()}
    return cell, w, model, model.save(tmp_path / "run")


def test_the_four_ways_equal_a_cell_that_is_written_here(trained):
    cell, w, model, folder = trained
    test = model.corpus.test
    count = (test.lengths - 1).sum()

    def loss(weights, term):
        return float(nll(cell, weights, test.tokens, test.lengths, term).sum() / count)

    def zero(name, value):
        return value * (name != TERM[cell])

    mean = mean_product(cell, w, model.corpus.train)
    other = sum(with_other(cell, w, *group).sum() for group in groups(test)) / count
    repaired = loss(trained_on(cell, w, model, zero), zero)
    expected = {
        "zero": loss(w, zero) - loss(w, as_it_is),
        "mean": loss(w, lambda n, v: mean.expand_as(v) if n == TERM[cell] else v),
        "other": float(other),
        "trained": repaired - loss(trained_on(cell, w, model, as_it_is), as_it_is),
    }
    for way in ("mean", "other"):
        expected[way] -= loss(w, as_it_is)
    frame = lmzoo.ablate(folder, steps=STEPS)
    [found] = frame.filter(frame["cut"] == f"cut {CUTS[cell]}").to_dicts()
    assert {way: found[way] for way in expected} == pytest.approx(expected, abs=3e-5)
    assert abs(expected["zero"]) > 1e-3


def test_the_progress_in_a_file_is_a_line_for_each_measurement(trained, capsys):
    *_, folder = trained
    lmzoo.ablate(folder, steps=STEPS)
    lines = capsys.readouterr().err.splitlines()
    count = int(lines[-1].split(" of ")[1].split(":")[0])
    assert [line.split(" of ")[0] for line in lines] == [str(1 + n) for n in range(count)]


def test_a_second_call_measures_what_is_missing(trained, monkeypatch):
    *_, folder = trained
    first = lmzoo.ablate(folder, steps=STEPS)
    file = folder.parent / ABLATIONS
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + b'{"cut')
    asked = []
    measure = ablation.losses
    monkeypatch.setattr(ablation, "losses", lambda *own: asked.append(own[1]) or measure(*own))
    assert lmzoo.ablate(folder, steps=STEPS).equals(first)
    assert asked == ["trained"]
