"""The kernels of `functional/matrix_state.py`, in its symbols.

q, k, p, r (N, T, n, K); v, o, u (N, T, n, V); log w (N, T, n, D), D = K or 1; states (N, n, K, V).
A program computes all steps of one sequence and head, for a block of the columns of S, which do not
depend on each other; the block stays in registers. Forward stores all states, backward reads them.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.launch import launch

NUMBERS = 2048
OF_WARP = 256
"""Numbers of S in a program, more only if K is larger, and in a warp: registers are enough."""


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_w: Tensor,
    start: Tensor,
    *erased: Tensor,
) -> tuple[Tensor, ...]:
    """Return o, S_T, all S_t (N, T, n, K, V), and u, which is empty without p and r."""
    o = v.new_empty(v.shape)
    end = start.new_empty(start.shape)
    # Backward reads the state before every step.
    states = v.new_empty(v.shape[:-1] + start.shape[-2:])
    # Without a delta rule nothing is erased, and u has no numbers.
    columns = 0
    if erased:
        columns = v.shape[-1]
    u = v.new_empty(v.shape[:-1] + (columns,))
    written = (o, end, states, u)
    _launch(_forward, (q, k, v, log_w, start), erased, written)
    return written


def backward(
    g: Tensor, g_end: Tensor, states: Tensor, u: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of the inputs of `forward`."""
    q, _, v, log_w, start = inputs[:5]
    erased = inputs[5:]
    dv = v.new_empty(v.shape)
    dstart = start.new_empty(start.shape)
    keys, values = start.shape[2:]
    columns = constants(keys, values)["VALUES"]
    blocks = -(-values // columns)
    # Programs of one head write sums over their own columns: no atomic additions.
    sums = q.new_empty((3 + len(erased), blocks) + q.shape)
    others = (g, g_end, states, u, sums, dv, dstart)
    _launch(_backward, inputs[:5], erased, others)
    # One block of columns has the whole sum: nothing is to be added.
    total = sums[:, 0]
    if blocks > 1:
        total = sums.sum(1)
    dq, dk, dlog = total[:3]
    if log_w.shape[-1] == 1:
        # One decay of a head multiplies all of its channels.
        dlog = dlog.sum(-1, keepdim=True)
    return (dq, dk, dv, dlog, dstart) + total[3:].unbind()


def _launch(
    kernel: Any,
    inputs: tuple[Tensor, ...],
    erased: tuple[Tensor, ...],
    others: tuple[Tensor, ...],
) -> None:
    """Launch a kernel on the inputs of `forward`, with p and r or without, and other tensors."""
    steps, heads, decays = inputs[3].shape[1:]
    start = inputs[4]
    keys, values = start.shape[2:]
    chosen = constants(keys, values)
    erases = len(erased) > 0
    if not erases:
        # Without p and r, any tensors stand in their place and are not read.
        erased = inputs[:2]
    # Kernels compute addresses from the sizes alone.
    tensors = [tensor.contiguous() for tensor in inputs + erased + others]
    grid = (len(start) * heads, -(-values // chosen["VALUES"]))
    sizes = [steps, heads, keys, values]
    launch(kernel, grid, tensors + sizes, ERASES=erases, EACH=decays > 1, **chosen)


def constants(keys: int, values: int) -> dict[str, int]:
    """Return the padded sizes of a program's block of S, and its warps."""
    # A range in Triton is a power of two.
    keys = 1 << (keys - 1).bit_length()
    values = 1 << (values - 1).bit_length()
    # Columns of S do not depend on each other, so that a program may have a few of them.
    values = min(values, max(1, NUMBERS // keys))
    return {
        "KEYS": keys,
        "VALUES": values,
        "num_warps": max(1, keys * values // OF_WARP),
        "num_stages": 1,
    }


@triton.jit
def _decay(log_w, at, i, K, EACH: tl.constexpr):
    if EACH:
        w = tl.exp(tl.load(log_w + at * K + i, mask=i < K, other=0.0))
    else:
        w = tl.exp(tl.load(log_w + at))
    return w


# A block of S stays in registers for all steps.
@triton.jit
def _forward(
    q,
    k,
    v,
    log_w,
    start,
    p,
    r,
    o,
    end,
    states,
    u,
    T,
    H,
    K,
    V,
    ERASES: tl.constexpr,
    EACH: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, KEYS)[:, None]
    j = tl.program_id(1) * VALUES + tl.arange(0, VALUES)[None, :]
    own = (i < K) & (j < V)
    is_key = i < K
    is_value = j < V
    s = tl.load(start + row * K * V + i * V + j, mask=own, other=0.0)
    for t in range(T):
        at = ((row // H) * T + t) * H + row % H
        w = _decay(log_w, at, i, K, EACH)
        read = tl.load(q + at * K + i, mask=is_key, other=0.0)
        key = tl.load(k + at * K + i, mask=is_key, other=0.0)
        value = tl.load(v + at * V + j, mask=is_value, other=0.0)
        new = w * s + key * value
        if ERASES:
            probed = tl.sum(tl.load(r + at * K + i, mask=is_key, other=0.0) * s, axis=0)[None, :]
            new -= tl.load(p + at * K + i, mask=is_key, other=0.0) * probed
            tl.store(u + at * V + j, probed, mask=is_value)
        s = new
        tl.store(o + at * V + j, tl.sum(read * s, axis=0)[None, :], mask=is_value)
        tl.store(states + at * K * V + i * V + j, s, mask=own)
    tl.store(end + row * K * V + i * V + j, s, mask=own)


@triton.jit
def _backward(
    q,
    k,
    v,
    log_w,
    start,
    p,
    r,
    g,
    g_end,
    states,
    u,
    sums,
    dv,
    dstart,
    T,
    H,
    K,
    V,
    ERASES: tl.constexpr,
    EACH: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, KEYS)[:, None]
    j = tl.program_id(1) * VALUES + tl.arange(0, VALUES)[None, :]
    own = (i < K) & (j < V)
    is_key = i < K
    is_value = j < V
    size = tl.num_programs(0).to(tl.int64) * T * K
    out = sums + tl.program_id(1) * size
    size *= tl.num_programs(1)
    s_0 = tl.load(start + row * K * V + i * V + j, mask=own, other=0.0)
    carried = tl.load(g_end + row * K * V + i * V + j, mask=own, other=0.0)
    for back in range(T):
        t = T - 1 - back
        at = ((row // H) * T + t) * H + row % H
        s = tl.load(states + at * K * V + i * V + j, mask=own, other=0.0)
        before = tl.load(states + (at - H) * K * V + i * V + j, mask=own & (t > 0), other=0.0)
        # The stored states begin after the first step.
        before = tl.where(t > 0, before, s_0)
        w = _decay(log_w, at, i, K, EACH)
        read = tl.load(q + at * K + i, mask=is_key, other=0.0)
        key = tl.load(k + at * K + i, mask=is_key, other=0.0)
        value = tl.load(v + at * V + j, mask=is_value, other=0.0)
        upstream = tl.load(g + at * V + j, mask=is_value, other=0.0)
        carried += read * upstream
        tl.store(
            dv + at * V + j,
            tl.sum(carried * key, axis=0)[None, :],
            mask=is_value,
        )
        # In the order in which `backward` reads the sums: q, k, log w, p, r.
        to = out + at * K + i
        tl.store(to, tl.sum(s * upstream, axis=1)[:, None], mask=is_key)
        tl.store(to + size, tl.sum(carried * value, axis=1)[:, None], mask=is_key)
        kept = w * carried
        tl.store(to + 2 * size, tl.sum(kept * before, axis=1)[:, None], mask=is_key)
        if ERASES:
            probed = tl.load(u + at * V + j, mask=is_value, other=0.0)
            erase = tl.load(p + at * K + i, mask=is_key, other=0.0)
            du = -tl.sum(carried * erase, axis=0)[None, :]
            tl.store(
                to + 3 * size,
                -tl.sum(carried * probed, axis=1)[:, None],
                mask=is_key,
            )
            tl.store(to + 4 * size, tl.sum(before * du, axis=1)[:, None], mask=is_key)
            kept += tl.load(r + at * K + i, mask=is_key, other=0.0) * du
        carried = kept
    tl.store(dstart + row * K * V + i * V + j, carried, mask=own)
