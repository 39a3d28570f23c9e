"""The kernels of `functional/matrix_state.py`, in its symbols.

q, k, p, r (N, T, n, K); v, o, u (N, T, n, V); log w (N, T, n, D), D = K or 1; states (N, n, K, V).
A program computes all steps of one sequence and head, for a block of the columns of S, which do not
depend on each other; the block stays in registers. Forward stores all states, backward reads them.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load, numbers, program_int64
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
    lead = v.shape[:-1]
    states = v.new_empty(lead + start.shape[-2:])
    # Without a delta rule nothing is erased, and u has no numbers.
    columns = 0
    if erased:
        columns = v.shape[-1]
    u = v.new_empty(lead + (columns,))
    inputs = (q, k, v, log_w, start)
    written = (o, end, states, u)
    _launch(_forward, inputs, erased, written)
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
    count = 3 + len(erased)
    sums = q.new_empty((count, blocks) + q.shape)
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
    gradients = (dq, dk, dv, dlog, dstart)
    return gradients + total[3:].unbind()


def _launch(
    kernel: Any,
    inputs: tuple[Tensor, ...],
    erased: tuple[Tensor, ...],
    others: tuple[Tensor, ...],
):
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
    blocks = -(-values // chosen["VALUES"])
    grid = (len(start) * heads, blocks)
    arguments = tensors + [steps, heads, keys, values]
    each = decays > 1
    launch(kernel, grid, arguments, ERASES=erases, EACH=each, **chosen)


def constants(keys: int, values: int) -> dict[str, int]:
    """Return the padded sizes of a program's block of S, and its warps."""
    # A range in Triton is a power of two.
    keys = 1 << (keys - 1).bit_length()
    values = 1 << (values - 1).bit_length()
    # Columns of S do not depend on each other, so that a program may have a few of them.
    fitting = max(1, NUMBERS // keys)
    values = min(values, fitting)
    return {
        "KEYS": keys,
        "VALUES": values,
        "num_warps": max(1, keys * values // OF_WARP),
        "num_stages": 1,
    }


@triton.jit
def _decay(log_w, at, i, K, EACH: tl.constexpr):
    if EACH:
        log = load(log_w + at * K + i, i < K)
    else:
        log = tl.load(log_w + at)
    return tl.exp(log)


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
    row = program_int64(0)
    i = tl.arange(0, KEYS)[:, None]
    j = numbers(1, VALUES)[None, :]
    own = (i < K) & (j < V)
    is_key = i < K
    is_value = j < V
    s = load(start + row * K * V + i * V + j, own)
    for t in range(T):
        at = ((row // H) * T + t) * H + row % H
        w = _decay(log_w, at, i, K, EACH)
        read = load(q + at * K + i, is_key)
        key = load(k + at * K + i, is_key)
        value = load(v + at * V + j, is_value)
        new = w * s + key * value
        if ERASES:
            probe = load(r + at * K + i, is_key)
            probed = tl.sum(probe * s, 0)[None, :]
            erase = load(p + at * K + i, is_key)
            new -= erase * probed
            tl.store(u + at * V + j, probed, is_value)
        s = new
        o_t = tl.sum(read * s, 0)
        tl.store(o + at * V + j, o_t[None, :], is_value)
        tl.store(states + at * K * V + i * V + j, s, own)
    tl.store(end + row * K * V + i * V + j, s, own)


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
    row = program_int64(0)
    i = tl.arange(0, KEYS)[:, None]
    j = numbers(1, VALUES)[None, :]
    own = (i < K) & (j < V)
    is_key = i < K
    is_value = j < V
    size = tl.num_programs(0).to(tl.int64) * T * K
    out = sums + tl.program_id(1) * size
    size *= tl.num_programs(1)
    s_0 = load(start + row * K * V + i * V + j, own)
    carried = load(g_end + row * K * V + i * V + j, own)
    for back in range(T):
        t = T - 1 - back
        at = ((row // H) * T + t) * H + row % H
        s = load(states + at * K * V + i * V + j, own)
        earlier = (at - H) * K * V
        before = load(states + earlier + i * V + j, own & (t > 0))
        # The stored states begin after the first step.
        before = tl.where(t > 0, before, s_0)
        w = _decay(log_w, at, i, K, EACH)
        read = load(q + at * K + i, is_key)
        key = load(k + at * K + i, is_key)
        value = load(v + at * V + j, is_value)
        upstream = load(g + at * V + j, is_value)
        carried += read * upstream
        dv_t = tl.sum(carried * key, 0)
        tl.store(dv + at * V + j, dv_t[None, :], is_value)
        # In the order in which `backward` reads the sums: q, k, log w, p, r.
        to = out + at * K + i
        dq = tl.sum(s * upstream, 1)
        tl.store(to, dq[:, None], is_key)
        dk = tl.sum(carried * value, 1)
        tl.store(to + size, dk[:, None], is_key)
        kept = w * carried
        dlog = tl.sum(kept * before, 1)
        tl.store(to + 2 * size, dlog[:, None], is_key)
        if ERASES:
            probed = load(u + at * V + j, is_value)
            erase = load(p + at * K + i, is_key)
            du = -tl.sum(carried * erase, 0)[None, :]
            dp = -tl.sum(carried * probed, 1)
            tl.store(to + 3 * size, dp[:, None], is_key)
            dr = tl.sum(before * du, 1)
            tl.store(to + 4 * size, dr[:, None], is_key)
            probe = load(r + at * K + i, is_key)
            kept += probe * du
        carried = kept
    tl.store(dstart + row * K * V + i * V + j, carried, own)
