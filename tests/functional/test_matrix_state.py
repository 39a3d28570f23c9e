"""Matrix states, by the kernel and in chunks, equal products of explicit transition matrices."""

import pytest
import torch
from torch import Tensor

from lmzoo.functional.matrix_state import Update, matrix_scan, matrix_step
from tests.laws.support import assert_close
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


@pytest.mark.parametrize("chunk", [4, None])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("delta", [False, True])
def test_scans_equal_steps_in_outputs_last_state_and_gradients(
    chunk: int | None, *, vector: bool, delta: bool
) -> None:
    update = random_update(7, 11, vector=vector, delta=delta)
    state = torch.randn(7, N, K, V, dtype=torch.float64)
    weight, of_end = torch.randn(7, 11, N, V, dtype=torch.float64), torch.randn_like(state)
    results = []
    for serial in (False, True):
        parts = [p if p is None else p.clone().requires_grad_() for p in update]
        start = state.clone().requires_grad_()
        if serial:
            end, steps = start, []
            for t in range(11):
                o, end = matrix_step(Update(*(p if p is None else p[:, t] for p in parts)), end)
                steps.append(o)
            outputs = torch.stack(steps, 1)
        else:
            outputs, end = matrix_scan(Update(*parts), start, chunk)
        leaves = [start, *(p for p in parts if p is not None)]
        loss = (outputs * weight).sum() + (end * of_end).sum()
        results.append([outputs, end, *torch.autograd.grad(loss, leaves)])
    for fast, serial_ in zip(*results, strict=True):
        assert_close(fast, serial_, FINE, "outputs and gradients")


@pytest.mark.parametrize("delta", [False, True])
def test_members_of_a_pack_are_scanned_as_if_alone(*, delta: bool) -> None:
    updates = [random_update(4, 5, vector=True, delta=delta, seed=seed) for seed in range(3)]
    state = torch.randn(4, N, K, V, dtype=torch.float64)
    parts = [torch.stack(p) for p in zip(*updates, strict=True) if p[0] is not None]

    def total(*parts: Tensor) -> Tensor:
        outputs, end = matrix_scan(Update(*parts), state)
        return outputs.sin().sum() + end.sin().sum()

    gradients = torch.func.vmap(torch.func.grad(total, tuple(range(len(parts)))))(*parts)
    for i, update in enumerate(updates):
        alone = torch.func.grad(total, tuple(range(len(parts))))(
            *(p for p in update if p is not None)
        )
        for packed, one in zip(gradients, alone, strict=True):
            assert packed[i].equal(one)


@pytest.mark.parametrize("chunk", [4, None])
def test_nan_and_infinite_decays_are_kept(chunk: int | None) -> None:
    update = random_update(1, 4, vector=True, delta=False)
    log_decay = update.log_decay.float().clone()
    log_decay[0, 1, 0, 0], log_decay[0, 2, 1, 1] = torch.nan, -1000.0
    update = Update(*(p.float() for p in update[:3]), log_decay)
    outputs, end = matrix_scan(update, torch.ones(1, N, K, V), chunk)
    assert outputs[0, 1:, 0].isnan().all()
    assert end[0, 0, 0].isnan().all()
    assert outputs[0, :, 1].isfinite().all()


def test_a_fast_decay_neither_overflows_nor_loses_gradients() -> None:
    update = random_update(1, 256, vector=True, delta=False)
    log_decay = (50 * update.log_decay).float().requires_grad_()
    update = Update(*(p.float() for p in update[:3]), log_decay)
    outputs, _ = matrix_scan(update, torch.zeros(1, N, K, V))
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert log_decay.grad is not None
    assert log_decay.grad.isfinite().all()
