"""Cuts of trained models, against cells that are written here without the package."""

import pytest
import torch
from torch.nn.functional import cross_entropy

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
        product = v @ w[weight].T
        # torch's order of the gates.
        r, z, n = zip(product.chunk(3, dim=-1), w[bias].chunk(3), strict=True)
        return {"r": r, "z": z, "n": n}

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


# The initial state of each cell.
START = {"mgu": 1.0, "gru": 1.0, "min_gru": 0.0}
STEP = {"mgu": mgu, "gru": gru, "min_gru": min_gru}


def norm(x):
    mean_square = (x**2).mean(-1, keepdim=True)
    return x / torch.sqrt(mean_square + 1e-5)


def nll(cell, w, tokens, lengths, term=as_it_is):
    """Return −log P of each token, 0 beyond the lengths."""
    table = w["weight"]
    step = STEP[cell]
    batch, length = tokens.shape
    _, width = table.shape
    h = torch.full((batch, width), START[cell])
    values = []
    for t in range(1, length):
        x = norm(table[tokens[:, t - 1]])
        h = step(w, x, h, term)
        logits = norm(h) @ table.T
        value = cross_entropy(logits, tokens[:, t], reduction="none")
        values.append(value)
    scored = torch.arange(1, length) < lengths[:, None]
    return torch.stack(values, 1) * scored


def groups(part):
    """Yield the tokens and the lengths of sequences that are equally long."""
    for length in part.lengths.unique():
        rows = part.lengths == length
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
    term = replaced(cell, lambda _: next(others))
    return nll(cell, w, tokens, lengths, term)


def trained_on(cell, w, model, term):
    """Return the weights after some steps of Adam."""
    data = extra_data(model.corpus, 16, STEPS)
    trained = {name: value.clone().requires_grad_() for name, value in w.items()}
    weights = list(trained.values())
    adam = torch.optim.Adam(weights, lr=0.02)
    for rows in epoch_batches(data.lengths, 16, seed=5, epoch=0):
        adam.zero_grad()
        lengths = data.lengths[rows]
        values = nll(cell, trained, data.tokens[rows], lengths, term)
        mean = values.sum() / (lengths - 1).sum()
        mean.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        adam.step()
    return trained


SLOW = [pytest.param(cell, marks=pytest.mark.slow) for cell in ("gru", "min_gru")]


@pytest.fixture(params=["mgu"] + SLOW)
def trained(request, tmp_path):
    cell = request.param
    fields = {"cell": cell, "emission": "vector", "width": 6}
    recipe = {"lr": 0.02, "batch": 16}
    model = lmzoo.build("recurrent_lm", CORPUS, recipe=recipe, seed=5, **fields)
    model.fit(1)
    w = {}
    for path, value in model.module.state_dict().items():
        name = path.rpartition(".")[2]
        w[name] = value
    return cell, w, model, model.save(tmp_path / "run")


@torch.no_grad()
def loss_of(cell, w, part, term):
    values = nll(cell, w, part.tokens, part.lengths, term)
    return float(values.sum() / (part.lengths - 1).sum())


def loss_with_other(cell, w, part):
    """Return the loss with the products of another sequence that is as long."""
    total = 0.0
    for tokens, lengths in groups(part):
        values = with_other(cell, w, tokens, lengths)
        total += float(values.sum())
    return total / float((part.lengths - 1).sum())


def test_the_four_ways_equal_a_cell_that_is_written_here(trained):
    cell, w, model, folder = trained
    test = model.corpus.test
    zero = replaced(cell, torch.zeros_like)
    mean = mean_product(cell, w, model.corpus.train)
    with_mean = replaced(cell, mean.expand_as)
    went_on = trained_on(cell, w, model, as_it_is)
    repaired = trained_on(cell, w, model, zero)
    whole = loss_of(cell, w, test, as_it_is)
    # Training goes on without the cut, too, which is what the repaired one is compared with.
    longer = loss_of(cell, went_on, test, as_it_is)
    expected = {
        "zero": loss_of(cell, w, test, zero) - whole,
        "mean": loss_of(cell, w, test, with_mean) - whole,
        "other": loss_with_other(cell, w, test) - whole,
        "trained": loss_of(cell, repaired, test, zero) - longer,
    }
    frame = lmzoo.ablate(folder, steps=STEPS)
    (row,) = frame.filter(frame["cut"] == f"cut {CUTS[cell]}").to_dicts()
    found = {way: row[way] for way in expected}
    assert found == pytest.approx(expected, abs=3e-5)
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
    *written, _ = file.read_bytes().splitlines(keepends=True)
    # As a process that ended while it wrote leaves it.
    file.write_bytes(b"".join(written) + b'{"cut')
    measured = []
    measure = ablation.losses

    def counted(*arguments):
        _, way, *_ = arguments
        measured.append(way)
        return measure(*arguments)

    monkeypatch.setattr(ablation, "losses", counted)
    second = lmzoo.ablate(folder, steps=STEPS)
    assert second.equals(first)
    # Its line was the last one.
    assert measured == ["trained"]
