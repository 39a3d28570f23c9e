"""Recurrences on a GPU against the loop over `step` in float64, for each precision of products."""

import torch
from measure import Ratio

from lmzoo.cells.base import CELLS
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.kernels.precision import WIDEST, Precision, use_precision

TOLERANCES = {Precision.TF32X3: 2e-5, Precision.TF32: 2**-8, Precision.BF16: 2**-6}
"""Largest difference, relative to the largest number plus one. More than in the tests of the
interpreter, which are smaller."""
CELL_NAMES = ("mgu", "mgru", "gru", "lstm", "rnn")
ROWS, STEPS = 33, 20


def equality(device: torch.device) -> list[Ratio]:
    """Return the error of outputs and gradients over its tolerance, for every cell."""
    return [
        _row(name, width, precision, device)
        for precision, widest in WIDEST.items()
        for width in (30, widest)
        for name in CELL_NAMES
    ]


def _row(name: str, width: int, precision: Precision, device: torch.device) -> Ratio:
    torch.manual_seed(0)
    cell = CELLS.build(CELLS.parse(name), width, STEPS)
    x, upstream = torch.randn(2, ROWS, STEPS, width).unbind()
    start = torch.randn(ROWS, width * cell.num_state_vectors)
    with use_precision(precision):
        ours = _results(cell.to(device), x.to(device), start.to(device), upstream.to(device))
    with without_kernels():
        cell = cell.double().cpu()
        references = _results(cell, x.double(), start.double(), upstream.double())
    error = max(
        ((result.cpu() - reference).abs().max() / (1 + reference.abs().max())).item()
        for result, reference in zip(ours, references, strict=True)
    )
    ratio = error / TOLERANCES[precision]
    return Ratio(
        what=f"{name}, largest error", at=f"B={ROWS}, H={width}, T={STEPS}, {precision}",
        rival="the loop over steps in float64", unit="error / tolerance",
        median=ratio, low=ratio, high=ratio, goal="≤ 1", holds=ratio <= 1,
        absolute=f"{error:.1e} / {TOLERANCES[precision]:.1e}",
    )  # fmt: skip


def _results(cell, x, start, upstream) -> list[torch.Tensor]:
    """Return the outputs and the gradients of inputs, initial states and weights."""
    x.requires_grad_()
    start.requires_grad_()
    out = cell.scan(x, start)
    inputs = [x, start, *cell.parameters()]
    gradients = torch.autograd.grad(
        out, inputs, upstream, allow_unused=True, materialize_grads=True
    )
    return [out.detach(), *gradients]
