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
from torch import Tensor, nn

from lmzoo.kernels.dispatch import Backward, CustomFunction, as_arrays, has_kernels, run_kernel

CHUNK, CHUNK_OF_VECTORS = 16, 8
"""Steps of a chunk with one decay per head, and with one per key channel, which needs a table of
K decays for each pair of steps. The fastest on a CPU at T=138 and width 64."""


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
    if chunk is None and has_kernels(update.query):
        erased = () if update.erase is None else update[4:]
        return _Scan.apply(*update[:4], state, *erased)
    length = update.query.shape[1]
    if chunk is None:
        chunk = CHUNK if update.log_decay.shape[-1] == 1 else CHUNK_OF_VECTORS
    chunk = min(chunk, length)
    # Padding has decay 1 and no key: it leaves the state as it is.
    q, k, v, log_w = (_chunks(part, chunk) for part in update[:4])
    total = log_w.cumsum(-2)
    end = total[..., -1:, :]
    decay, to_end = _decays(total, total, diagonal=0), (end - total).exp()
    attend, from_start, written = _products(q, k, decay), q * total.exp(), (k * to_end).mT
    kept = end.mT.exp()
    if update.erase is None or update.probe is None:
        outputs = []
        for m in range(q.shape[1]):
            outputs.append(from_start[:, m] @ state + attend[:, m] @ v[:, m])
            state = kept[:, m] * state + written[:, m] @ v[:, m]
        return _joined(outputs, length), state
    p, r = _chunks(update.erase, chunk), _chunks(update.probe, chunk)
    before = _decays(total - log_w, total, diagonal=-1)
    system, known = _products(r, p, before), _products(r, k, before)
    probed = r * (total - log_w).exp()
    attend_erased, erased, outputs = _products(q, p, decay), (p * to_end).mT, []
    for m in range(q.shape[1]):
        right = probed[:, m] @ state + known[:, m] @ v[:, m]
        u = torch.linalg.solve_triangular(system[:, m], right, upper=False, unitriangular=True)
        output = from_start[:, m] @ state + attend[:, m] @ v[:, m]
        outputs.append(output - attend_erased[:, m] @ u)
        state = kept[:, m] * state + written[:, m] @ v[:, m] - erased[:, m] @ u
    return _joined(outputs, length), state


def _joined(outputs: list[Tensor], length: int) -> Float[Tensor, "B T n V"]:
    return torch.cat(outputs, dim=-2).transpose(1, 2)[:, :length]


def _chunks(part: Float[Tensor, "B T n K"], chunk: int) -> Float[Tensor, "B M n C K"]:
    """Split into M chunks of C steps, with zeros at the end."""
    padded = nn.functional.pad(part, (0, 0, 0, 0, 0, -part.shape[1] % chunk))
    return padded.unflatten(1, (-1, chunk)).transpose(2, 3)


def _decays(upto: Tensor, since: Tensor, diagonal: int) -> Float[Tensor, "B M n C C D"]:
    """Return exp(upto_t − since_s) for s ≤ t + diagonal, and 0 elsewhere."""
    steps = torch.arange(upto.shape[-2], device=upto.device)
    later = steps > steps[:, None] + diagonal
    exponents = upto[..., :, None, :] - since[..., None, :, :]
    return exponents.masked_fill(later[..., None], -torch.inf).exp()


def _products(x: Tensor, y: Tensor, decay: Tensor) -> Float[Tensor, "B M n C C"]:
    """Return Σ_i x_ti y_si decay_tsi."""
    if decay.shape[-1] == 1:
        return (x @ y.mT) * decay[..., 0]
    return (x[..., :, None, :] * y[..., None, :, :] * decay).sum(-1)


class _Scan(CustomFunction):
    """(q, k, v, log w, S_0), then (p, r) or nothing -> (o, S_T)."""

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        from lmzoo.kernels.cpu import matrix_state as kernels

        v, start = tensors[2], tensors[4]
        o, end = v.new_empty(v.shape), v.new_empty(start.shape)
        run_kernel(kernels.forward, *_kernel_inputs(*tensors), *_rows(o, end))
        return o, end

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _ScanBackward.apply(*upstream, *ctx.saved_tensors)


class _ScanBackward(Backward):
    """(∂L/∂o, ∂L/∂S_T, *inputs) -> gradients of all inputs."""

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.kernels.cpu import matrix_state as kernels

        gradients = [tensor.new_empty(tensor.shape) for tensor in tensors[2:]]
        arrays = _rows(*tensors[:2]), _kernel_inputs(*tensors[2:]), _kernel_inputs(*gradients)
        run_kernel(kernels.backward, *(array for group in arrays for array in group))
        return tuple(gradients)


def _kernel_inputs(q: Tensor, *rest: Tensor) -> list[Any]:
    """Return the arrays that a kernel reads; without p and r arrays without elements."""
    absent = [] if len(rest) > 4 else [q.new_empty(0, 0, 0, 0)] * 2
    return _rows(q, *rest, *absent)


def _rows(*tensors: Tensor) -> list[Any]:
    """Return arrays of four axes: those before the last three become one."""
    return as_arrays(*(t.flatten(0, -4) if t.dim() > 4 else t for t in tensors))
