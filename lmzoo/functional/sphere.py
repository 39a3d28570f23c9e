r"""Projection of vectors onto the sphere of radius R.

    y = f x        f = R / max(‖x‖, ε),  ε = 1e-12
    ∂L/∂x = f ( g − y (g·y) / R² )        g = ∂L/∂y; where ‖x‖ < ε the second term is missing

In torch operations this passes over x six times forward and ten times backward, in two memory
orders if x comes time first from a recurrence. On a CPU a kernel needs one pass each way
(`kernels/cpu/sphere.py`). Derived here.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.dispatch import as_arrays, has_gpu_kernels, has_kernels, run_kernel

MIN_SIZE = 2**9
"""The number of elements from which the kernel saves more time than its call costs."""
MIN_LENGTH = 1e-12
"""ε: a shorter vector is scaled by R / ε."""


def project_to_sphere(x: Float[Tensor, "*N E"], radius: float) -> Float[Tensor, "*N E"]:
    """Scale each vector to length `radius`."""
    if has_kernels(x, MIN_SIZE) or has_gpu_kernels(x):
        return _Project.apply(x, radius)[0]
    return naive_project_to_sphere(x, radius)


def naive_project_to_sphere(x: Float[Tensor, "*N E"], radius: float) -> Float[Tensor, "*N E"]:
    """Compute `project_to_sphere` in torch operations."""
    # One factor per vector: x / ‖x‖ would need several more passes over x backward.
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(MIN_LENGTH)
    return x * (radius / length)


class _Project(CustomFunction):
    """(x, R) -> (y, f)."""

    @staticmethod
    def forward(x: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        if not has_kernels(x):
            from lmzoo.kernels.gpu import sphere as gpu_kernels

            return gpu_kernels.forward(x, radius, MIN_LENGTH)
        from lmzoo.kernels.cpu import sphere as kernels

        y, f = x.new_empty(x.shape), x.new_empty(x.shape[:-1])
        rows = _time_first(x)
        steps, count, width = rows.shape
        outputs = as_arrays(y.view(count, steps, width), f.view(count, steps))
        run_kernel(kernels.forward, *as_arrays(rows), radius, radius / MIN_LENGTH, *outputs)
        return y, f

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.radius, ctx.steps = inputs[1], _steps(inputs[0])
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        y, f = ctx.saved_tensors
        return _ProjectBackward.apply(upstream[0], y, f, ctx.radius, ctx.steps), None


class _ProjectBackward(Backward):
    """(g, y, f, R, T) -> ∂L/∂x, in the memory order of x."""

    @staticmethod
    def forward(g: Tensor, y: Tensor, f: Tensor, radius: float, steps: int) -> Tensor:
        if not has_kernels(g):
            from lmzoo.kernels.gpu import sphere as gpu_kernels

            return gpu_kernels.backward(g, y, f, radius, MIN_LENGTH)
        from lmzoo.kernels.cpu import sphere as kernels

        *lead, width = g.shape
        if steps > 1:
            lead.pop()
        args = as_arrays(*(x.reshape(-1, steps, width) for x in (g, y)), f.reshape(-1, steps))
        dx = g.new_empty(steps, *lead, width)
        output = as_arrays(dx.view(steps, len(args[0]), width))
        run_kernel(kernels.backward, *args, radius, radius / MIN_LENGTH, *output)
        return dx.movedim(0, -2) if steps > 1 else dx[0]


def _steps(x: Float[Tensor, "*N E"]) -> int:
    """Return T if the last axis but one is first in memory, as a recurrence writes it; else 1."""
    if x.dim() > 2 and not x.is_contiguous() and x.movedim(-2, 0).is_contiguous():
        return x.shape[-2]
    return 1


def _time_first(x: Float[Tensor, "*N E"]) -> Float[Tensor, "T N E"]:
    """Return x as rows in its own memory order, without a copy if time is first in memory."""
    steps = _steps(x)
    return x.movedim(-2, 0).flatten(1, -2) if steps > 1 else x.reshape(1, -1, x.shape[-1])
