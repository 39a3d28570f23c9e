"""Elementwise cells: cuts of one give another; spectra, limits and other forms."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import softplus

from lmzoo.cells.base import CELLS
from lmzoo.laws.tiny import assert_close
from tests.cells.support import inputs, make, trace
from tests.tiny import assert_equal_double, quick

SEEDS = st.integers(0, 10_000)


TIED = {"xf": "-xz", "bf": "-bz", "xh": "xh", "bh": "bh"}
"""The forget gate of the LSTM is one minus the write gate of the GRU."""
MGU_WEIGHTS = {"xz": "xf", "bz": "bf", "xh": "xh", "bh": "bh"}
"""Weights of the minimal GRU, and what the MGU calls them."""
EYE = torch.eye(3)


def copy(target, source, names):
    """Copy weights; a name with a leading minus is copied with the other sign."""
    with torch.no_grad():
        for name, other in names.items():
            path = other.lstrip("-")
            value = source.w.get_parameter(path)
            if other[0] == "-":
                value = -value
            weight = target.w.get_parameter(name)
            weight.copy_(value.reshape(weight.shape))


def same(left, right, seed):
    """Assert equal outputs for equal random inputs and states of width H."""
    x, state = inputs(left, seed=seed)
    expected = left.scan(x, state + left.zero_start)
    actual = right.scan(x, state + right.zero_start)
    assert_equal_double(actual, expected)


@given(seed=SEEDS)
@quick
def test_min_gru_with_tanh_is_the_mgu_whose_states_are_read_by_nothing(seed):
    mgu = make("mgu", cuts="state_to_gate, state_to_candidate", seed=seed)
    cell = make("min_gru", candidate="tanh")
    copy(cell, mgu, MGU_WEIGHTS)
    same(cell, mgu, seed)


@given(seed=SEEDS)
@quick
def test_min_gru_with_its_path_h_to_z_is_the_mgu_without_state_to_candidate(seed):
    mgu = make("mgu", cuts=["state_to_candidate"], seed=seed)
    cell = make("min_gru", candidate="tanh", state_to_gate=True)
    copy(cell, mgu, MGU_WEIGHTS | {"hz": "hf"})
    same(cell, mgu, seed)


def test_the_write_gate_of_a_candidate_of_zeros_changes_nothing():
    options = {"candidate": "tanh", "cuts": [2, 3]}
    whole = {"name": "min_gru"} | options
    cut = whole | {"cuts": [2, 3, 5]}
    config = CELLS.parse(cut)
    assert config == CELLS.parse(whole), "z_t ⊙ 0 = 0"


@given(seed=SEEDS)
@quick
def test_min_lstm_with_tied_gates_is_the_min_gru(seed):
    """i = 1 − f by the cut write_gate, or by opposite weights under the normaliser."""
    gru = make("min_gru", seed=seed)
    tied = make("min_lstm", cuts=["write_gate"])
    copy(tied, gru, TIED)
    same(tied, gru, seed)
    for cuts in ([], ["normaliser"]):
        # Gates with opposite weights sum to one, with the normaliser or without.
        full = make("min_lstm", cuts=cuts)
        weights = TIED | {"xi": "xz", "bi": "bz"}
        copy(full, gru, weights)
        same(full, gru, seed)


LOW = st.floats(0, 0.8)


@given(seed=SEEDS, low=LOW)
@quick
def test_initial_eigenvalues_are_in_the_ring_and_gamma_is_their_normaliser(seed, low):
    for cuts in ([], ["exponential"]):
        ring = {"r_min": low, "r_max": 0.95, "max_phase": 0.3}
        fields = ring | {"cuts": cuts, "seed": seed}
        cell = make("lru", width=50, **fields)
        eigenvalues = cell.eigenvalues()
        # Eigenvalues are drawn in a ring, within a sector of it.
        radius = eigenvalues.abs()
        phase = eigenvalues.angle()
        assert radius.min() >= low - 1e-5
        assert radius.max() <= 0.95 + 1e-5
        assert phase.min() >= 0
        assert phase.max() <= 0.3 + 1e-5
        gamma = torch.exp(cell.w.gamma)
        expected = (1 - radius**2).sqrt()
        assert_close(gamma, expected, 1e-5, "gamma")


@given(seed=SEEDS)
@quick
def test_rg_lru_without_gates_is_the_real_lru(seed):
    """Without skip, with B = C = 1 in the real part and γ = √(1 − λ²)."""
    griffin = make("rg_lru", cuts="recurrence_gate, input_gate", seed=seed)
    lru = make("lru", cuts="phase, skip", seed=seed)
    # The constant 8 is that of the RG-LRU.
    rate = 8 * softplus(griffin.w.decay)
    with torch.no_grad():
        squares = torch.exp(-2 * rate)
        lru.w.nu.copy_(rate.log())
        log_squares = torch.log1p(-squares)
        lru.w.gamma.copy_(log_squares / 2)
        for weight in (lru.w.b_im, lru.w.c_im):
            weight.zero_()
        for weight in (lru.w.b_re, lru.w.c_re):
            weight.copy_(EYE)
    x, start = inputs(griffin, seed=seed)
    x[:, 0] = 0  # the first input of the RG-LRU has no root
    ones = torch.ones_like(start)
    real = torch.cat([start, ones], dim=-1)
    actual = lru.scan(x, real)
    expected = griffin.scan(x, start)
    assert_equal_double(actual, expected)


@given(seed=SEEDS)
@quick
def test_slstm_without_exponential_and_normaliser_is_the_lstm(seed):
    lstm = make("lstm", seed=seed)
    cell = make("slstm", cuts="exponential, normaliser, convolution, norm", heads=1)
    biases = lstm.w.bias_ih + lstm.w.bias_hh
    w = lstm.w
    parts = {"x": w.weight_ih, "h": w.weight_hh, "b": biases}
    with torch.no_grad():
        for kind, weight in parts.items():
            parts_of_gates = weight.chunk(4)
            for gate, part in zip("ifzo", parts_of_gates, strict=True):
                target = cell.w.get_parameter(f"{kind}{gate}")
                target.copy_(part.t())
    x, start = inputs(cell, seed=seed)
    zeros = torch.zeros_like(start)
    h = start - 1
    both = torch.cat([h, zeros], dim=-1)
    actual = cell.scan(x, start)
    expected = lstm.scan(x, both)
    assert_equal_double(actual, expected)


def test_slstm_does_not_overflow_on_long_sequences_of_large_inputs():
    for cuts in ("", "normaliser", "forget_gate", "forget_gate, normaliser"):
        cell = make("slstm", cuts=cuts, length=128)
        cell.float()
        x, start = inputs(cell)
        large = 100 * x.float()
        for part in trace(cell, large, start.float()):
            assert part.isfinite().all()


@given(seed=SEEDS)
@quick
def test_hgrn2_with_one_unit_per_head_and_no_query_is_the_min_gru(seed):
    gru = make("min_gru", candidate="linear", cuts="gate_bias, candidate_bias", seed=seed)
    cell = make("hgrn2", heads=3, cuts="lower_bound, query, norm")
    with torch.no_grad():
        cell.w.out.copy_(EYE)
        cell.w.xf.copy_(-gru.w.xz)
        cell.w.xv.copy_(gru.w.xh)
    x, start = inputs(gru, seed=seed)
    twos = 2 * torch.ones_like(start)
    both = torch.cat([start, twos], dim=-1)
    actual = cell.scan(x, both)
    expected = gru.scan(x, start)
    assert_equal_double(actual, expected)
