"""Matrix states equal products of explicit transition matrices."""

import torch

from lmzoo.functional.matrix_state import Update, matrix_scan
from lmzoo.kernels.dispatch import without_kernels
from tests.cases import parametrize
from tests.functional.forms import agree, matrix_inputs, matrix_loop, results, scan_matrices
from tests.tiny import assert_equal_double


def brute_force(update, state):
    """Return o_t = Σ_{s≤t} v_s (M_t .. M_{s+1} k_s · q_t), M_t = diag(w_t) − p_t r_tᵀ explicit."""
    query = update.query
    decay = update.log_decay.exp().expand_as(query)
    matrices = torch.diag_embed(decay)
    if update.erase is not None and update.probe is not None:
        column = update.erase[..., None]
        row = update.probe[..., None, :]
        matrices = matrices - column * row
    outputs = []
    for t in range(query.shape[1]):
        reader = query[:, t]
        output = torch.zeros_like(update.value[:, t])
        # The reader goes back through the transitions.
        for s in range(t, -1, -1):
            products = reader * update.key[:, s]
            match = products.sum(-1, keepdim=True)
            output += match * update.value[:, s]
            reader = torch.einsum("bhij,bhi->bhj", matrices[:, s], reader)
        from_start = torch.einsum("bhk,bhkv->bhv", reader, state)
        outputs.append(output + from_start)
    return torch.stack(outputs, 1)


EACH_DECAY = parametrize("vector", [False, True])
EACH_RULE = parametrize("delta", [False, True])


@parametrize("length", [1, 7])
@EACH_DECAY
@EACH_RULE
def test_scans_equal_products_of_matrices(vector, delta, length):
    state, *parts = matrix_inputs(length, 0, vector=vector, delta=delta)
    update = Update(*parts)
    expected = brute_force(update, state)
    fast, _ = matrix_scan(update, state)
    with without_kernels():
        plain, _ = matrix_scan(update, state)
    assert_equal_double(fast, expected)
    assert_equal_double(plain, expected)


@EACH_DECAY
@EACH_RULE
def test_a_fast_decay_neither_overflows_nor_loses_gradients(vector, delta):
    inputs = matrix_inputs(256, 0, vector=vector, delta=delta)
    # The log decays.
    inputs[4] *= 50
    single = [part.float() for part in inputs]
    actual = results(scan_matrices, single)
    expected = results(matrix_loop, inputs)
    agree(actual, expected, 1e-4)
