"""All 4,096 patterns of the MGRU against its equations, and its options."""

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.mgu import MGRU, Carry, Gate, MGRUCut, Output, PriorCarry, Squash
from lmzoo.laws.tiny import assert_close
from tests.cases import parametrize
from tests.cells.support import LENGTH, WIDTH, bits, groups, inputs, make, outputs, subsets
from tests.tiny import FINE

PATTERNS = subsets(12)


def weights(width=WIDTH, length=LENGTH):
    """Return all weights that a pattern may use: gate, candidate, and both kinds of attention."""
    by_key = make("mgru", width, length, carry="prior", prior=False)
    by_query = make("mgru", width, length, carry="bilinear", heads=2)
    named = {}
    # What both have is drawn equally.
    for cell in (by_query, by_key):
        for name, weight in cell.named_parameters():
            named[name] = weight.detach()
    return named


def gate_input(h, m):
    """Return what the gate reads: h; h − ½ with 6 but not 7; ½ logit(h) with 9 as well."""
    centred = h - 0.5
    # Clamped, as the cell does: the logits of 0 and 1 are infinite.
    doubled = (2 * centred).clamp(-0.9999, 0.9999)
    logit = torch.atanh(doubled)
    changed = torch.where(m[9], logit, centred)
    is_changed = m[6] & ~m[7]
    return torch.where(is_changed, changed, h)


def carried(outputs, h, w, m):
    """Return j after the first step: h, or attention over o_0..o_{t-1}; 10 wins over 11."""
    earlier = torch.stack(outputs, dim=2)  # P B s H
    key_scores = earlier @ w["attend.key"]
    key_weights = key_scores.softmax(2)
    by_key = (key_weights * earlier).sum(2)
    form = w["attend.form"]
    scores = torch.einsum("pbsh,whk,pbk->pbsw", earlier, form, h)
    query_scores = scores @ w["attend.mix.weight"].T
    query_weights = query_scores.softmax(2)
    by_query = (query_weights * earlier).sum(2)
    j = torch.where(m[11], by_query, h)
    return torch.where(m[10], by_key, j)


def mgru(w, mutated, x, start):
    """Return outputs and states (P, B, T, H) of P patterns, rows of `mutated`, without Λ.

    m_i is whether mutation i is there, and u_i = 1 − m_i.
    """
    m = mutated.T[:, :, None, None]
    u = (~m).to(x.dtype)
    count = len(mutated)
    h = start.expand(count, *start.shape)
    outputs = []
    states = []
    for x_t in x.unbind(1):
        read = gate_input(h, m) @ w["w.hf"]
        f = torch.sigmoid(u[0] * read)
        candidate = u[1] * (x_t @ w["w.xh"])
        sigmoid = torch.sigmoid(candidate)
        tanh = torch.tanh(candidate)
        g = torch.where(m[4], sigmoid, tanh)
        # There is nothing to attend to before the first output.
        j = h
        if outputs:
            j = carried(outputs, h, w, m)
        kept = u[2] * (1 - f) * j
        written = u[3] * f * g
        added = m[5] * f * j
        h = kept + written + added
        states.append(h)
        centred = m[6] & ~m[8]
        output = torch.where(centred, h - 0.5, h)
        outputs.append(output)
    # P B T H
    return torch.stack(outputs, 2), torch.stack(states, 2)


def config_of(mutations):
    """Return the config of a pattern, or None if it is an error."""
    options = {"mutations": mutations, "prior": False, "heads": 2}
    try:
        return CELLS.parse({"name": "mgru"} | options)
    except UserError:
        return None


@pytest.fixture(scope="module")
def configs():
    return [config_of(mutations) for mutations in PATTERNS]


@pytest.fixture(scope="module")
def expected():
    x, start = inputs(make("mgru"))
    return every_pattern(x, start)


def every_pattern(x, start):
    return mgru(weights(), bits(12), x, start)


@pytest.fixture(scope="module")
def blind(expected):
    """Return for every pattern whether its outputs ignore the inputs, by the equations."""
    cell = make("mgru")
    # Other inputs, and the same start.
    other_x, _ = inputs(cell, seed=2)
    _, start = inputs(cell)
    other, _ = every_pattern(other_x, start)
    outputs, _ = expected
    change = (outputs - other).abs()
    largest = change.amax((1, 2, 3))
    return (largest < FINE).tolist()


def run(config, named):
    """Return the outputs of a cell with these weights."""
    cell = MGRU(config, WIDTH, LENGTH)
    cell.double()
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(named[name])
    return outputs(cell)


def test_every_pattern_computes_its_equation(configs, expected):
    named = weights()
    # Patterns of one function have one config, which is built once.
    functions = set(configs) - {None}
    results = {config: run(config, named) for config in functions}
    outputs, _ = expected
    results_of_patterns = zip(configs, outputs, PATTERNS, strict=True)
    for config, output, mutations in results_of_patterns:
        if config is not None:
            assert_close(results[config], output, FINE, f"outputs of {mutations}")


def test_exactly_the_patterns_with_zero_state_are_errors(configs, expected):
    _, states = expected
    largest = states.abs().amax((1, 2, 3))
    zero = largest == 0
    errors = [config is None for config in configs]
    assert errors == zero.tolist()


def test_configs_are_equal_exactly_if_functions_are_equal(configs, expected, blind):
    reading = [i for i, is_blind in enumerate(blind) if not is_blind]
    named = [configs[i] for i in reading]
    outputs, _ = expected
    first = [named.index(config) for config in named]
    assert groups(outputs[reading]) == first
    assert len(reading) == 1024
    assert len(set(named)) == 148


def test_numbers_are_other_names_of_options():
    numbered = MGRU.Config(mutations=[4, 6])
    centred = {"gate": Gate.CENTRED, "output": Output.CENTRED}
    named = MGRU.Config(squash=Squash.SIGMOID, **centred)
    assert numbered == named


def test_numbers_are_other_names_of_cuts():
    numbered = MGRU.Config(mutations="0;4,10")
    cuts = [MGRUCut.STATE_TO_GATE]
    options = {"squash": "sigmoid", "carry": Carry.PRIOR}
    named = MGRU.Config(cuts=cuts, **options)
    assert numbered == named


@parametrize("length", [4, 6])
def test_unused_entries_of_the_prior_get_no_gradient(length):
    carry = PriorCarry(WIDTH, length, prior=True)
    outputs = torch.randn(2, length - 1, WIDTH)
    state = torch.randn(2, WIDTH)
    for t in range(1, length - 1):
        j = carry(outputs[:, :t], state)
        j.square().sum().backward()
    unused = carry.prior.grad == 0
    assert carry.unused == unused.sum()
