"""Cuts of trained models, against cells that are written here without the package."""

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
    from_input = term("xf", x @ w["xf"])
    from_state = term("hf", h @ w["hf"])
    f = torch.sigmoid(from_input + from_state + w["bf"])
    from_input = term("xh", x @ w["xh"])
    from_state = term("hh", (f * h) @ w["hh"])
    c = torch.tanh(from_input + from_state + w["bh"])
    return (1 - f) * h + f * c


def gru(w, x, h, term):
    def gates(v, weight, bias):
        """Return the products and the biases of each gate."""
        products = (v @ w[weight].T).chunk(3, dim=-1)
        return dict(zip("rzn", zip(products, w[bias].chunk(3), strict=True), strict=True))

    of_input = gates(x, "weight_ih", "bias_ih")
    of_state = gates(h, "weight_hh", "bias_hh")

    def logit(gate, factor=1.0):
        product, bias = of_input[gate]
        read = term(f"x{gate}", product) + bias
        product, bias = of_state[gate]
        carried = term(f"h{gate}", product) + bias
        return read + factor * carried

    r = torch.sigmoid(logit("r"))
    z = torch.sigmoid(logit("z"))
    n = torch.tanh(logit("n", r))
    return (1 - z) * n + z * h


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
        x = norm(table[tokens[:, t]])
        h = STEP[cell](w, x, h, term)
        scores = torch.log_softmax(norm(h) @ table.T, -1)
        chosen = scores.gather(1, tokens[:, t + 1, None])
        values.append(-chosen[:, 0])
    scored = torch.arange(1, tokens.shape[1]) < lengths[:, None]
    return torch.stack(values, 1) * scored


def groups(part):
    for length in part.lengths.unique():
        rows = (part.lengths == length).nonzero().flatten()
        yield part.tokens[rows, :length], part.lengths[rows]


def products(cell, w, tokens, lengths):
    """Return the product that the cut removes, at every position."""
    seen = []

    def keep(name, value):
        if name == TERM[cell]:
            seen.append(value)
        return value

    nll(cell, w, tokens, lengths, keep)
    return seen


def replaced(cell, function):
    """Return terms in which a function has the place of the product that the cut removes."""

    def term(name, value):
        if name == TERM[cell]:
            return function(value)
        return value

    return term


def mean_product(cell, w, part):
    seen = []
    for tokens, lengths in groups(part):
        seen += products(cell, w, tokens, lengths)
    return torch.cat(seen).mean(0)


def with_other(cell, w, tokens, lengths):
    """Return the loss with the products of the sequence before."""
    # One product for each position.
    others = iter(products(cell, w, tokens.roll(1, 0), lengths))
    return nll(cell, w, tokens, lengths, replaced(cell, lambda _: next(others)))


def trained_on(cell, w, model, term):
    """Return the weights after some steps of Adam."""
    data = extra_data(model.corpus, 16, STEPS)
    w = {name: value.clone().requires_grad_() for name, value in w.items()}
    adam = torch.optim.Adam(w.values(), lr=0.02)
    for rows in epoch_batches(data.lengths, 16, seed=5, epoch=0):
        adam.zero_grad()
        lengths = data.lengths[rows]
        values = nll(cell, w, data.tokens[rows], lengths, term)
        mean = values.sum() / (lengths - 1).sum()
        mean.backward()
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
        values = nll(cell, weights, test.tokens, test.lengths, term)
        return float(values.sum() / count)

    whole = loss(w, as_it_is)
    zero = replaced(cell, torch.zeros_like)
    mean = mean_product(cell, w, model.corpus.train)
    with_mean = loss(w, replaced(cell, mean.expand_as))
    other = sum(with_other(cell, w, *group).sum() for group in groups(test)) / count
    went_on = loss(trained_on(cell, w, model, as_it_is), as_it_is)
    repaired = loss(trained_on(cell, w, model, zero), zero)
    expected = {
        "zero": loss(w, zero) - whole,
        "mean": with_mean - whole,
        "other": float(other) - whole,
        "trained": repaired - went_on,
    }
    frame = lmzoo.ablate(folder, steps=STEPS)
    [found] = frame.filter(frame["cut"] == f"cut {CUTS[cell]}").to_dicts()
    assert {way: found[way] for way in expected} == pytest.approx(expected, abs=3e-5)
    assert abs(expected["zero"]) > 1e-3


def test_the_progress_in_a_file_is_a_line_for_each_measurement(trained, capsys):
    *_, folder = trained
    lmzoo.ablate(folder, steps=STEPS)
    lines = capsys.readouterr().err.splitlines()
    for number, line in enumerate(lines, start=1):
        assert line.startswith(f"{number} of {len(lines)}:")


def test_a_second_call_measures_what_is_missing(trained, monkeypatch):
    *_, folder = trained
    first = lmzoo.ablate(folder, steps=STEPS)
    file = folder.parent / ABLATIONS
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + b'{"cut')
    measured = []
    measure = ablation.losses

    def counted(*arguments):
        measured.append(arguments[1])
        return measure(*arguments)

    monkeypatch.setattr(ablation, "losses", counted)
    assert lmzoo.ablate(folder, steps=STEPS).equals(first)
    assert measured == ["trained"]
