"""Matrix states, by the kernel and in chunks, equal products of explicit transition matrices."""

import pytest
import torch
from torch import Tensor

from lmzoo.functional.matrix_state import Update, matrix_scan
from lmzoo.laws.support import assert_close
from tests.tiny import FINE

N, K, V = 2, 3, 5


def random_update(count: int, length: int, *, vector: bool, delta: bool, seed: int = 0) -> Update:
    generator = torch.Generator().manual_seed(seed)

    def draw(size: int) -> Tensor:
        shape = (count, length, N, size)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q, k, v = draw(K), draw(K), draw(V)
    log_decay = -draw(K if vector else 1).abs()
    return Update(q, k, v, log_decay, *((0.3 * draw(K), 0.3 * draw(K)) if delta else ()))


def brute_force(update: Update, state: Tensor) -> Tensor:
    """Return o_t = Σ_{s≤t} v_s (M_t .. M_{s+1} k_s · q_t), M_t = diag(w_t) − p_t r_tᵀ explicit."""
    count, length, *_ = update.query.shape
    outputs = torch.zeros(count, length, N, V, dtype=torch.float64)
    for b in range(count):
        for n in range(N):
            matrices = []
            for t in range(length):
                matrix = torch.diag(update.log_decay[b, t, n].exp().expand(K))
                if update.erase is not None and update.probe is not None:
                    matrix = matrix - torch.outer(update.erase[b, t, n], update.probe[b, t, n])
                matrices.append(matrix)
            for t in range(length):
                reader = update.query[b, t, n]
                for s in range(t, -1, -1):
                    outputs[b, t, n] += (reader @ update.key[b, s, n]) * update.value[b, s, n]
                    reader = matrices[s].T @ reader
                outputs[b, t, n] += reader @ state[b, n]
    return outputs


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("delta", [False, True])
def test_scans_equal_products_of_matrices(*, vector: bool, delta: bool) -> None:
    for length, chunk in ((1, 4), (7, 3), (7, 16), (8, 4), (1, None), (7, None)):
        update = random_update(2, length, vector=vector, delta=delta)
        state = torch.randn(2, N, K, V, dtype=torch.float64)
        found = matrix_scan(update, state, chunk)[0]
        assert_close(found, brute_force(update, state), FINE, f"outputs, {length} in {chunk}")


def test_a_fast_decay_neither_overflows_nor_loses_gradients() -> None:
    update = random_update(1, 256, vector=True, delta=False)
    log_decay = (50 * update.log_decay).float().requires_grad_()
    update = Update(*(p.float() for p in update[:3]), log_decay)
    outputs, _ = matrix_scan(update, torch.zeros(1, N, K, V))
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert log_decay.grad is not None
    assert log_decay.grad.isfinite().all()
