r"""Linear recurrences whose state is a matrix: step by step, and by a kernel.

    S_t = (diag(w_t) − p_t r_tᵀ) S_{t-1} + k_t v_tᵀ        o_t = S_tᵀ q_t

S is (K, V); w is a decay in (0, 1], given by its logarithm, one per key channel or one per head;
p rᵀ erases, and is absent in cells without a delta rule. A kernel is a loop over steps with the
state in the cache of a CPU, or in the registers of a GPU. With u_t = S_{t-1}ᵀ r_t it computes, from
∂L/∂o_t = g_t,

    G_t = q_t g_tᵀ + diag(w_{t+1}) G_{t+1} + r_{t+1} du_{t+1}ᵀ      dq = S_t g      du = −G_tᵀ p
    dk = G_t v     dv = G_tᵀ k     dw = (G_t ⊙ S_{t-1}) 1           dp = −G_t u     dr = S_{t-1} du

Yang et al. 2024 (arXiv:2312.06635, arXiv:2406.06484); Dao & Gu 2024 (arXiv:2405.21060).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import (
    CustomFunction,
    as_arrays,
    has_gpu_kernels,
    has_kernels,
    run_kernel,
    without_autocast,
)

HeadKeys = Float[Tensor, "*N n K"]
"""A key of each head."""

MatrixState = Float[Tensor, "B n K V"]
"""S of each head."""


class Update(NamedTuple):
    """The coefficients of one step, (*N, heads, ..), or of all steps, (*N, T, heads, ..)."""

    query: HeadKeys
    key: HeadKeys
    value: Float[Tensor, "*N n V"]
    log_decay: Float[Tensor, "*N n D"]
    """log w ≤ 0; D is K, or 1 for one decay per head."""
    erase: HeadKeys | None = None
    """p; None without a delta rule."""
    probe: HeadKeys | None = None
    """r."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Update":
        """Apply a function to every coefficient that is present."""
        changed = []
        for part in self:
            if part is not None:
                part = change(part)
            changed.append(part)
        return Update(*changed)


def stacked(steps: Sequence[Update]) -> Update:
    """Return the coefficients of consecutive steps on one axis, before the heads."""
    parts = iter(zip(*steps, strict=True))
    first = steps[0]
    # The axis of steps is before the heads (`MatrixCell.substeps`).
    return first.each(lambda _: torch.stack(next(parts), -3))


def matrix_step(
    update: Update,
    state: MatrixState,
) -> tuple[Float[Tensor, "B n V"], MatrixState]:
    """Compute one step: (o_t, S_t)."""
    decay = update.log_decay.exp()
    decayed = decay[..., None] * state
    if update.erase is not None and update.probe is not None:
        # Row by row, not as a matrix: I − e pᵀ of (K, K) is never made.
        u = _read(update.probe, state)
        decayed = decayed - _outer(update.erase, u)
    state = decayed + _outer(update.key, update.value)
    return _read(update.query, state), state


def _outer(k: Tensor, v: Tensor) -> Tensor:
    """Return k vᵀ."""
    return k[..., None] * v[..., None, :]


def _read(q: Tensor, state: Tensor) -> Tensor:
    """Return Sᵀ q."""
    return (q[..., None] * state).sum(-2)


def matrix_scan(
    update: Update,
    state: MatrixState,
) -> tuple[Float[Tensor, "B T n V"], MatrixState]:
    """Compute T steps: (o_1..o_T, S_T), equal to a loop over `matrix_step`; by a kernel if any."""
    present = [part for part in update if part is not None]
    parts = [part.to(state.dtype) for part in present]
    with without_autocast(state):
        if has_kernels(state) or has_gpu_kernels(state):
            # The number of tensors is not known to autograd: p and r come last.
            erases = len(parts) > 4
            arguments = parts[:4] + [state, erases]
            arguments += parts[4:]
            return _Scan.apply(*arguments)[:2]
        cast = Update(*parts)
        return scan_by_steps(matrix_step, cast, state)


def scan_by_steps(step: Any, update: Update, state: Tensor) -> tuple[Tensor, Tensor]:
    """Compute T steps in a loop: (o_1..o_T, S_T)."""
    outputs = []
    steps = update.value.shape[1]
    for t in range(steps):
        # `t=t`: the function keeps this t.
        now = update.each(lambda part, t=t: part[:, t])
        o, state = step(now, state)
        outputs.append(o)
    return torch.stack(outputs, 1), state


class _Scan(CustomFunction):
    """(q, k, v, log w, S_0, erases?), then (p, r) if so -> (o, S_T, what a kernel saves)."""

    results = 2

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        # Without `erases`, which is not a tensor.
        inputs = args[:5] + args[6:]
        v = args[2]
        start = args[4]
        if not has_kernels(start):
            from lmzoo.kernels.gpu import matrix_state as gpu_kernels

            lead = start.shape[:-3]
            return _by_gpu(gpu_kernels.forward, lead, inputs)
        from lmzoo.kernels.cpu import matrix_state as kernels

        o = v.new_empty(v.shape)
        end = v.new_empty(start.shape)
        arrays = _kernel_inputs(inputs) + _rows([o, end])
        run_kernel(kernels.forward, arrays)
        return o, end

    @staticmethod
    def gradients(
        q: Tensor,
        g: Tensor | None,
        g_end: Tensor | None,
        *rest: Any,
    ) -> Any:
        """Return the gradients of all inputs from ∂L/∂o and ∂L/∂S_T."""
        k, v, log_w, start, erases = rest[:5]
        first = 5
        if erases:
            first = 7  # p and r come before what was saved
        erased = rest[5:first]
        inputs = (q, k, v, log_w, start) + erased
        saved = rest[first:]
        if g is None:
            g = torch.zeros_like(v)
        if g_end is None:
            g_end = torch.zeros_like(start)
        if saved:
            # The GPU's forward stored states; the CPU's backward computes them again.
            from lmzoo.kernels.gpu import matrix_state as gpu_kernels

            tensors = (g, g_end) + saved + inputs
            lead = start.shape[:-3]
            return _by_gpu(gpu_kernels.backward, lead, tensors)
        from lmzoo.kernels.cpu import matrix_state as kernels

        gradients = [tensor.new_empty(tensor.shape) for tensor in inputs]
        arrays = _rows([g, g_end])
        arrays += _kernel_inputs(inputs)
        arrays += _kernel_inputs(gradients)
        run_kernel(kernels.backward, arrays)
        return tuple(gradients)


def _by_gpu(
    kernel: Any,
    lead: torch.Size,
    tensors: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Call a kernel, for which the leading axes are one."""
    # Kernels have one axis for members and rows.
    last = len(lead) - 1
    flat = [tensor.flatten(0, last) for tensor in tensors]
    outputs = kernel(*flat)
    return tuple(output.unflatten(0, lead) for output in outputs)


def _kernel_inputs(tensors: Sequence[Tensor]) -> list[Any]:
    """Return the arrays that a kernel reads; without p and r arrays without elements."""
    rows = _rows(tensors)
    # Kernels take all arrays; arrays without elements say that nothing is erased.
    if len(rows) == 5:
        empty = tensors[0].new_empty(0, 0, 0, 0)
        rows += _rows([empty, empty])
    return rows


def _rows(tensors: Sequence[Tensor]) -> list[Any]:
    """Return arrays of four axes: those before the last three become one."""
    rows = []
    for tensor in tensors:
        if tensor.dim() > 4:
            tensor = tensor.flatten(0, -4)
        rows.append(tensor)
    return as_arrays(rows)
