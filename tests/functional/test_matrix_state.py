"""Matrix states equal products of explicit transition matrices."""

import pytest
import torch
from torch import Tensor

from lmzoo.functional.matrix_state import Update, matrix_scan
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.laws.tiny import assert_close
from tests.functional.forms import agree, matrix_inputs, matrix_loop, results, scan_matrices
from tests.tiny import FINE


def brute_force(update: Update, state: Tensor) -> Tensor:
    """Return o_t = Σ_{s≤t} v_s (M_t .. M_{s+1} k_s · q_t), M_t = diag(w_t) − p_t r_tᵀ explicit."""
    keys = update.query.shape[-1]
    outputs = []
    matrices = torch.diag_embed(update.log_decay.exp().expand(*update.query.shape[:-1], keys))
    if update.erase is not None and update.probe is not None:
        matrices = matrices - update.erase[..., None] * update.probe[..., None, :]
    for t in range(update.query.shape[1]):
        reader = update.query[:, t]
        output = torch.zeros_like(update.value[:, t])
        for s in range(t, -1, -1):
            output += (reader * update.key[:, s]).sum(-1, keepdim=True) * update.value[:, s]
            reader = (matrices[:, s].mT @ reader[..., None])[..., 0]
        outputs.append(output + (reader[..., None, :] @ state)[..., 0, :])
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("delta", [False, True])
def test_scans_equal_products_of_matrices(vector, delta):
    for length in (1, 7):
        state, *parts = matrix_inputs(length, 0, vector=vector, delta=delta)
        update = Update(*parts)
        expected = brute_force(update, state)
        assert_close(matrix_scan(update, state)[0], expected, FINE, f"outputs, {length}")
        with without_kernels():
            assert_close(matrix_scan(update, state)[0], expected, FINE, f"without, {length}")


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("delta", [False, True])
def test_a_fast_decay_neither_overflows_nor_loses_gradients(vector, delta):
    inputs = matrix_inputs(256, 0, vector=vector, delta=delta)
    inputs[4] *= 50
    agree(results(scan_matrices, [x.float() for x in inputs]), results(matrix_loop, inputs), 1e-4)
