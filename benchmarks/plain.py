r"""Cells on a CPU next to what a user would write in plain PyTorch, forward and backward.

    python benchmarks/plain.py --rounds 5

    LSTM, GRU      torch.nn.LSTM, torch.nn.GRU
    minGRU         the scan in the space of logarithms (Heinsen 2023, arXiv:2311.06281)
    GLA            chunks of 16 tokens with factorised decays (Yang et al. 2024, algorithm 1)
    Gated DeltaNet chunks of 16 tokens with a triangular solve (Yang et al. 2025)
    Mamba          the loop over steps of the paper's reference, `selective_scan_ref`

The modern rivals have the weights of the cell, and equal it up to rounding, which is checked.
Interleaved in one process, one thread, seconds of CPU time.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from measure import Ratio, Work, interleave, save, time_ratio
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid, normalize, pad, silu, softplus

from lmzoo.cells.base import CELLS, Cell
from lmzoo.command_line import run_command

CHUNK = 16
BATCH = 100
GOAL = 1.0


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    cells: Annotated[str, typer.Option(help="Cells, with commas.")] = "",
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/plain.json"),
) -> None:
    """Measure every cell at two widths and two lengths."""
    torch.set_num_threads(1)
    sizes = list(itertools.product((32, 64), (20, 100)))
    names = cells.split(",") if cells else [*RIVALS]
    save([compare(name, *size, rounds) for name in names for size in sizes], out)


def compare(name: str, width: int, length: int, rounds: int) -> Ratio:
    """Return the row of a cell at a width and a length."""
    torch.manual_seed(0)
    cell = CELLS.build(CELLS.parse(name), width, length)
    rival, modules = RIVALS[name](cell, width)
    x = torch.randn(BATCH, length, width)
    start = torch.full((BATCH, width * cell.num_state_vectors), cell.zero_start)
    if modules is None:
        torch.testing.assert_close(cell.scan(x, start), rival(x), rtol=1e-3, atol=1e-4)
    ours = training(lambda x: cell.scan(x, start), x, cell)
    theirs = training(rival, x, modules or cell)
    seconds = interleave({"ours": ours, "plain": theirs}, rounds)
    at = f"E={width}, T={length}, B={BATCH}"
    return time_ratio(name, at, "plain PyTorch", seconds["ours"], seconds["plain"], GOAL)


def training(forward: Callable[[Tensor], Tensor], x: Tensor, module: nn.Module) -> Work:
    """Return a forward and a backward pass."""
    upstream, parameters = torch.randn_like(x), [*module.parameters()]

    def work() -> None:
        inputs = x.clone().requires_grad_()
        torch.autograd.grad(forward(inputs), [inputs, *parameters], upstream, allow_unused=True)

    return work


def library(kind: Callable[..., nn.Module]) -> Callable[[Cell, int], tuple[Any, nn.Module]]:
    """Return the rival of a cell that torch has."""

    def rival(cell: Cell, width: int) -> tuple[Any, nn.Module]:
        module = kind(width, width, batch_first=True)
        return lambda x: module(x)[0], module

    return rival


def min_gru(cell: Any, width: int) -> tuple[Any, None]:
    """Return the minimal GRU."""
    w = cell.w

    def forward(x: Tensor) -> Tensor:
        gate, candidate = x @ w.xz + w.bz, x @ w.xh + w.bh
        log_a = -softplus(gate)
        positive = torch.where(
            candidate >= 0, (candidate.relu() + 0.5).log(), -softplus(-candidate)
        )
        total = log_a.cumsum(1)
        return (total + (-softplus(-gate) + positive - total).logcumsumexp(1)).exp()

    return forward, None


def chunks(x: Tensor, heads: int) -> Tensor:
    """Return (B, n, chunks, C, D) of (B, T, n D); the last chunk is filled with zeros."""
    x = pad(x, (0, 0, 0, -x.shape[1] % CHUNK))
    return x.unflatten(1, (-1, CHUNK)).unflatten(-1, (heads, -1)).permute(0, 3, 1, 2, 4)


def gla(cell: Any, width: int) -> tuple[Any, None]:
    """Return gated linear attention."""
    w, n = cell.w, cell.heads
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)

    def forward(x: Tensor) -> Tensor:
        q, k, v = (chunks(linear(x, weight), n) for weight in (w.q, w.k, w.v))
        decay = chunks(logsigmoid(linear(linear(x, w.low), w.alpha, w.bias_alpha)) / 16, n)
        total = decay.cumsum(-2)
        q, k_in = q * cell.keys**-0.5 * total.exp(), k * (-total).exp()
        o = (q @ k_in.mT).masked_fill(later, 0) @ v
        last = total[..., -1:, :]
        written = (k * (last - total).exp()).mT @ v
        return finish(cell, x, carried(q, o, last.exp().mT, written))

    return forward, None


def carried(q: Tensor, o: Tensor, decay: Tensor, written: Tensor) -> Tensor:
    """Add what each chunk reads of the state of the chunks before it."""
    state, parts = torch.zeros_like(written[:, :, 0]), []
    for i in range(o.shape[2]):
        parts.append(o[:, :, i] + q[:, :, i] @ state)
        state = decay[:, :, i] * state + written[:, :, i]
    return torch.stack(parts, 2)


def finish(cell: Any, x: Tensor, o: Tensor) -> Tensor:
    """Return the output of a cell with a norm per head and an output gate."""
    o = o.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, : x.shape[1]]
    scale = torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5)
    o = (o * scale * cell.w.norm.view(-1, cell.values)).flatten(-2)
    return linear(o * silu(linear(x, cell.w.gate)), cell.w.out)


def gated_deltanet(cell: Any, width: int) -> tuple[Any, None]:
    """Return Gated DeltaNet."""
    w, n = cell.w, cell.heads
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)
    eye = torch.eye(CHUNK)

    def forward(x: Tensor) -> Tensor:
        z = convolve(linear(x, torch.cat([w.q, w.k, w.v])), w.conv, None)
        q, k, v = (chunks(part, n) for part in z.split([len(w.q), len(w.k), len(w.v)], -1))
        q, k = normalize(q, dim=-1), normalize(k, dim=-1)
        beta = chunks(linear(x, w.beta).sigmoid(), n)
        log_a = chunks(-w.log_rate.exp() * softplus(linear(x, w.alpha) + w.bias_alpha), n)
        total = log_a.cumsum(-2)
        ratio = (total - total.mT).masked_fill(later, -torch.inf).exp()
        erased = (beta * k) @ k.mT * ratio
        inverse = torch.linalg.solve_triangular(
            eye + erased.tril(-1), torch.cat([beta * v, beta * k * total.exp()], -1), upper=False
        )
        u, m = inverse.split([v.shape[-1], k.shape[-1]], -1)
        scores, last = q @ k.mT * ratio, total[..., -1:, :]
        state, parts = x.new_zeros(len(x), n, cell.keys, cell.values), []
        for i in range(q.shape[2]):
            new = u[:, :, i] - m[:, :, i] @ state
            read = (q[:, :, i] * total[:, :, i].exp()) @ state
            parts.append(read + scores[:, :, i] @ new)
            kept = (k[:, :, i] * (last[:, :, i] - total[:, :, i]).exp()).mT @ new
            state = last[:, :, i].exp() * state + kept
        return finish(cell, x, torch.stack(parts, 2))

    return forward, None


def convolve(x: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
    """Return SiLU of the causal convolution of every channel over four tokens."""
    x = nn.functional.conv1d(pad(x.mT, (3, 0)), taps[:, None], bias, groups=len(taps))
    return silu(x.mT)


def mamba(cell: Any, width: int) -> tuple[Any, None]:
    """Return Mamba."""
    w = cell.w

    def forward(x: Tensor) -> Tensor:
        gate = linear(x, w.gate)
        x = convolve(linear(x, w.x), w.conv, None)
        delta = softplus(linear(linear(x, w.low_delta), w.delta, w.bias_delta))
        b, c = linear(x, w.b), linear(x, w.c)
        decay = (-w.log_rate.exp().view(cell.keys, -1) * delta[:, :, None]).exp()
        written = b[..., None] * (delta * x)[:, :, None]
        state, parts = torch.zeros_like(written[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + written[:, t]
            parts.append((c[:, t, :, None] * state).sum(1))
        return linear((torch.stack(parts, 1) + w.skip * x) * silu(gate), w.out)

    return forward, None


RIVALS: dict[str, Callable[[Any, int], tuple[Any, nn.Module | None]]] = {
    "lstm": library(nn.LSTM),
    "gru": library(nn.GRU),
    "min_gru": min_gru,
    "gla": gla,
    "gated_deltanet": gated_deltanet,
    "mamba": mamba,
}


if __name__ == "__main__":
    run_command(main)
