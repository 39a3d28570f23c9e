r"""Linear recurrences whose state is a matrix: step by step, by a kernel, and in chunks.

    S_t = (diag(w_t) − p_t r_tᵀ) S_{t-1} + k_t v_tᵀ        o_t = S_tᵀ q_t

S is (K, V); w is a decay in (0, 1], given by its logarithm, one per key channel or one per head;
p rᵀ erases, and is absent in cells without a delta rule. Let L_t = Σ_{s≤t} log w_s inside a chunk
that starts from S_0. With u_t = S_{t-1}ᵀ r_t and the triangular matrices

    A^{xy}_{ts} = Σ_i x_{ti} y_{si} exp(L_{t,i} − L_{s,i})        s ≤ t for x = q, s < t for x = r

(for r, L_{t-1} replaces L_t) a chunk is a few matrix products and one triangular system:

    (I + A^{rp}) U = (r ⊙ e^{L_{t-1}}) S_0 + A^{rk} V
    O  = (q ⊙ e^{L}) S_0 + A^{qk} V − A^{qp} U
    S' = e^{L_C} ⊙ S_0 + (k ⊙ e^{L_C − L})ᵀ V − (p ⊙ e^{L_C − L})ᵀ U

All exponents are at most 0, so nothing overflows, however long the sequence is. GPUs use chunks; on
a CPU a kernel is a loop over steps, with the state in the cache. It computes, from ∂L/∂o_t = g_t,

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
    Backward,
    CustomFunction,
    as_arrays,
    has_kernels,
    run_kernel,
    without_autocast,
)

CHUNK, CHUNK_OF_VECTORS = 32, 12
"""Most steps of a chunk with one decay per head, and with one per key channel, which needs a table
of K decays for each pair of steps."""


class Update(NamedTuple):
    """The coefficients of one step, (*N, heads, ..), or of all steps, (*N, T, heads, ..)."""

    query: Float[Tensor, "*N n K"]
    key: Float[Tensor, "*N n K"]
    value: Float[Tensor, "*N n V"]
    log_decay: Float[Tensor, "*N n D"]
    """log w ≤ 0; D is K, or 1 for one decay per head."""
    erase: Float[Tensor, "*N n K"] | None = None
    """p; None without a delta rule."""
    probe: Float[Tensor, "*N n K"] | None = None
    """r."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Update":
        """Apply a function to every coefficient that is present."""
        return Update(*(None if part is None else change(part) for part in self))  # type: ignore[arg-type]


def stacked(steps: Sequence[Update]) -> Update:
    """Return the coefficients of consecutive steps on one axis, before the heads."""
    parts = iter(zip(*steps, strict=True))
    return steps[0].each(lambda _: torch.stack(next(parts), dim=-3))


def matrix_step(
    update: Update, state: Float[Tensor, "B n K V"]
) -> tuple[Float[Tensor, "B n V"], Float[Tensor, "B n K V"]]:
    """Compute one step: (o_t, S_t)."""
    decayed = update.log_decay.exp()[..., None] * state
    if update.erase is not None and update.probe is not None:
        u = (update.probe[..., None] * state).sum(-2)
        decayed = decayed - update.erase[..., None] * u[..., None, :]
    state = decayed + update.key[..., None] * update.value[..., None, :]
    return (update.query[..., None] * state).sum(-2), state


def matrix_scan(
    update: Update, state: Float[Tensor, "B n K V"], chunk: int | None = None
) -> tuple[Float[Tensor, "B T n V"], Float[Tensor, "B n K V"]]:
    """Compute T steps: (o_1..o_T, S_T), equal to a loop over `matrix_step`.

    On a CPU by a kernel, elsewhere or with a `chunk` in chunks of so many steps.
    """
    length, by_kernel = update.query.shape[1], chunk is None and has_kernels(update.query)
    if chunk is None:
        chunk = CHUNK if update.log_decay.shape[-1] == 1 else CHUNK_OF_VECTORS
    size = length if by_kernel else -(-length // -(-length // chunk))
    outputs, present = [], [part.to(state.dtype) for part in update if part is not None]
    steps = (part.split(size, dim=1) for part in present)
    split = [present] if size == length else zip(*steps, strict=True)
    with without_autocast(state):
        for parts in split:
            o, state, *_ = _Scan.apply(*parts[:4], state, by_kernel, *parts[4:])
            outputs.append(o)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1), state


class _Scan(CustomFunction):
    """(q, k, v, log w, S_0, by a kernel?), then (p, r) or nothing -> (O, S', what a chunk saves).

    X = (q; r) and Y = (k; −p) are stacked, so that A = X Yᵀ ⊙ decays has all products of vectors.
    With Z = (V; U) it is O = [.. A^{qk} −A^{qp}] Z.
    """

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        parts, start, by_kernel = [*args[:4], *args[6:]], args[4], args[5]
        if by_kernel:
            from lmzoo.kernels.cpu import matrix_state as kernels

            o, end = parts[2].new_empty(parts[2].shape), start.new_empty(start.shape)
            inputs = _kernel_inputs(*parts[:4], start, *parts[4:])
            run_kernel(kernels.forward, *inputs, *_rows(o, end))
            return o, end
        q, k, v, log_w, *erased = (part.transpose(-3, -2) for part in parts)
        lead, steps, rows = q.shape[:-2], q.shape[-2], log_w.cumsum(-2)
        later = torch.ones(steps, steps, dtype=torch.bool, device=q.device).triu(1)
        if erased:
            q, k = torch.cat([q, erased[1]], -2), torch.cat([k, -erased[0]], -2)
            rows = torch.cat([rows, rows - log_w], -2)
            later = torch.cat([later, later | ~later.mT])
        x, y, v, rows, start = (t.flatten(0, -3) for t in (q, k, v, rows, start))
        total = rows[:, :steps]
        decay = rows[:, :, None] - total[:, None]
        decay = decay.masked_fill_(later[..., None], -torch.inf).exp_()
        a = _products(x, y, decay)
        read = torch.bmm(x * rows.exp(), start).baddbmm_(a[..., :steps], v)
        o, z = read[:, :steps], v
        if erased:
            u = torch.linalg.solve_triangular(
                -a[:, steps:, steps:], read[:, steps:], upper=False, unitriangular=True
            )
            z, o = torch.cat([v, u], 1), o.baddbmm_(a[:, :steps, steps:], u)
        end = total[:, -1:]
        written = y * _twice((end - total).exp(), y)
        end = torch.baddbmm(end.mT.exp() * start, written.mT, z)
        o = o.unflatten(0, lead).transpose(-3, -2)
        return o, *(t.unflatten(0, lead) for t in (end, x, y, z, rows, decay, a))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:5], *inputs[6:], *output[1:])
        ctx.count = len(inputs) - 1

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        saved, g = ctx.saved_tensors, upstream[0]
        g = torch.zeros_like(saved[2]) if g is None else g
        with without_autocast(g):
            gradients = _ScanBackward.apply(g, upstream[1], ctx.count, *saved)
        return *gradients[:5], None, *gradients[5:]


class _ScanBackward(Backward):
    r"""(∂L/∂O, ∂L/∂S', number of inputs, *inputs, S', *saved) -> gradients of all inputs.

    With H = (∂L/∂O; ∂L/∂(A^{rk} V + ..)) it is ∂L/∂A = H Zᵀ. The decays scale the vectors, x_t by
    e^{L_t} and y_s by e^{−L_s}, so ∂L/∂L_t = x_t ⊙ ∂L/∂x_t − y_t ⊙ ∂L/∂y_t.
    """

    @staticmethod
    def forward(g: Tensor, g_end: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        if len(tensors) == count + 1:
            from lmzoo.kernels.cpu import matrix_state as kernels

            g_end = torch.zeros_like(tensors[4]) if g_end is None else g_end
            gradients = [tensor.new_empty(tensor.shape) for tensor in tensors[:count]]
            arrays = _kernel_inputs(*tensors[:count]), _kernel_inputs(*gradients)
            run_kernel(kernels.backward, *_rows(g, g_end), *arrays[0], *arrays[1])
            return tuple(gradients)
        lead = tensors[4].shape[:-2]
        start, end, x, y, z, rows, decay, a = (
            tensor.flatten(0, len(lead) - 1) for tensor in (tensors[4], *tensors[-7:])
        )
        steps, h = decay.shape[2], g.transpose(-3, -2).flatten(0, -3)
        total = rows[:, :steps]
        to_end = (total[:, -1:] - total).exp()
        written = y * _twice(to_end, y)
        g_end = None if g_end is None else g_end.reshape(end.shape)
        if y.shape[1] > steps:
            du = torch.bmm(a[:, :steps, steps:].mT, h)
            if g_end is not None:
                du = du.baddbmm_(written[:, steps:], g_end)
            right = torch.linalg.solve_triangular(
                -a[:, steps:, steps:].mT, du, upper=True, unitriangular=True
            )
            h = torch.cat([h, right], 1)
        from_start = rows.exp()
        dv = torch.bmm(a[..., :steps].mT, h)
        dstart = torch.bmm((x * from_start).mT, h)
        dx, dy = _products_backward(torch.bmm(h, z.mT), x, y, decay)
        dx.addcmul_(torch.bmm(h, start.mT), from_start)
        if g_end is not None:
            dv.baddbmm_(written[:, :steps], g_end)
            dstart.addcmul_(total[:, -1:].mT.exp(), g_end)
            dy += torch.bmm(z, g_end.mT) * _twice(to_end, y)
        by_x, by_y = x * dx, y * dy
        if rows.shape[-1] == 1:
            by_x, by_y = by_x.sum(-1, keepdim=True), by_y.sum(-1, keepdim=True)
        by_x, by_y = by_x.unflatten(1, (-1, steps)), by_y.unflatten(1, (-1, steps))
        dlog = (by_x.sum(1) - by_y.sum(1)).flip(1).cumsum(1).flip(1)
        if g_end is not None:
            kept = (end * g_end).sum(-1)[:, None]
            dlog += kept if rows.shape[-1] > 1 else kept.sum(-1, keepdim=True)
        parts = [dx[:, :steps], dy[:, :steps], dv, dlog]
        if y.shape[1] > steps:
            dlog -= by_x[:, 1]  # r reads the state before the decay of its step
            parts += [-dy[:, steps:], dx[:, steps:]]
        parts = [part.unflatten(0, lead).transpose(-3, -2) for part in parts]
        return *parts[:4], dstart.unflatten(0, lead), *parts[4:]


def _twice(decay: Tensor, like: Tensor) -> Tensor:
    """Repeat the steps of a decay as often as `like` has them."""
    return decay.repeat(1, like.shape[1] // decay.shape[1], 1)


def _products(x: Tensor, y: Tensor, decay: Float[Tensor, "N R T D"]) -> Float[Tensor, "N R S"]:
    """Return Σ_i x_ti y_si decay_tsi; y has the T steps of the decays once or twice."""
    steps = decay.shape[2]
    if decay.shape[-1] == 1:
        products = torch.bmm(x, y.mT)
        products.unflatten(2, (-1, steps)).mul_(decay.mT)
        return products
    table = decay[:, :, None] * y.unflatten(1, (-1, steps))[:, None]
    return (table.flatten(2, 3) @ x[..., None])[..., 0]


def _products_backward(
    g: Tensor, x: Tensor, y: Tensor, decay: Float[Tensor, "N R T D"]
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and y."""
    steps = decay.shape[2]
    if decay.shape[-1] == 1:
        g.unflatten(2, (-1, steps)).mul_(decay.mT)
        return torch.bmm(g, y), torch.bmm(g.mT, x)
    table = (g.unflatten(2, (-1, steps))[..., None] * decay[:, :, None]).flatten(2, 3)
    dx = (table * y[:, None]).sum(2)
    return dx, table.mul_(x[:, :, None]).sum(1)


def _kernel_inputs(q: Tensor, *rest: Tensor) -> list[Any]:
    """Return the arrays that a kernel reads; without p and r arrays without elements."""
    absent = [] if len(rest) > 4 else [q.new_empty(0, 0, 0, 0)] * 2
    return _rows(q, *rest, *absent)


def _rows(*tensors: Tensor) -> list[Any]:
    """Return arrays of four axes: those before the last three become one."""
    return as_arrays(*(t.flatten(0, -4) if t.dim() > 4 else t for t in tensors))
