r"""Vectors put on a sphere of radius R.

    y = f x        f = R / max(‖x‖, ε),  ε = 1e-12
    ∂L/∂x = f ( g − y (g·y) / R² )        g = ∂L/∂y; where ‖x‖ < ε the second term is missing
    ∂f/∂x = −f² y / R²

As operations of torch this is half a dozen passes over x and ten on the way back, in two
orders of memory where x comes from a recurrence, time first. Of many vectors on a processor
it is one pass each way, compiled (`kernels/sphere.py`). Derived here; zoo.md 1.5.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.dispatch import as_arrays, has_kernels, run_kernel

LARGE = 2**9
"""Numbers from which a loop gains more than the call of an autograd function costs."""
SHORTEST = 1e-12
"""A vector shorter than this keeps a length in proportion."""


def onto_sphere(x: Float[Tensor, "*N E"], radius: float) -> Float[Tensor, "*N E"]:
    """Each vector with its direction kept and its length made `radius`."""
    return _Onto.apply(x, radius)[0] if has_kernels(x, LARGE) else plain(x, radius)


def plain(x: Float[Tensor, "*N E"], radius: float) -> Float[Tensor, "*N E"]:
    """The same, operation by operation."""
    # One factor a vector: x / ‖x‖ would pass over all of x several times more on the way back.
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(SHORTEST)
    return x * (radius / length)


class _Onto(CustomFunction):
    """(x, R) -> (y, f); both are differentiable, so that derivatives are too."""

    @staticmethod
    def forward(x: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        from lmzoo.kernels.cpu import sphere as kernels

        y, f = x.new_empty(x.shape), x.new_empty(x.shape[:-1])
        laid = _time_first(x)
        steps, rows, width = laid.shape
        into = y.view(rows, steps, width), f.view(rows, steps)
        run_kernel(kernels.onto, *as_arrays(laid), radius, radius / SHORTEST, *as_arrays(*into))
        return y, f

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.radius, ctx.steps = inputs[1], _steps(inputs[0])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, None]:
        (g, df), (y, f) = upstream, ctx.saved_tensors
        if g is not None and df is None and not torch.is_grad_enabled():
            return _Reverse.apply(g, y, f, ctx.radius, ctx.steps), None
        found, squared = None, ctx.radius**2
        inside = (f < ctx.radius / SHORTEST)[..., None]
        if g is not None:
            along = (g * y).sum(-1, keepdim=True) / squared
            found = f[..., None] * (g - y * along.where(inside, 0.0))
        if df is not None:
            turned = -((df * f**2)[..., None] / squared).where(inside, 0.0) * y
            found = turned if found is None else found + turned
        return found, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        x, radius = given
        return _Onto.apply(x.movedim(in_dims[0], 0), radius), (0, 0)


class _Reverse(Backward):
    """(g, y, f, R, T) -> ∂L/∂x, lying as x; `_Onto.backward` differentiates it another way."""

    @staticmethod
    def forward(g: Tensor, y: Tensor, f: Tensor, radius: float, steps: int) -> Tensor:
        from lmzoo.kernels.cpu import sphere as kernels

        *lead, width = g.shape
        if steps > 1:
            lead.pop()
        given = as_arrays(*(one.reshape(-1, steps, width) for one in (g, y)), f.reshape(-1, steps))
        dx = g.new_empty(steps, *lead, width)
        into = dx.view(steps, len(given[0]), width)
        run_kernel(kernels.reverse, *given, radius, radius / SHORTEST, *as_arrays(into))
        return dx.movedim(0, -2) if steps > 1 else dx[0]

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        *tensors, radius, steps = given
        joined = [
            one.expand(info.batch_size, *one.shape) if dim is None else one.movedim(dim, 0)
            for one, dim in zip(tensors, in_dims, strict=False)
        ]
        return _Reverse.apply(*joined, radius, steps), 0


def _steps(x: Float[Tensor, "*N E"]) -> int:
    """T, where a recurrence wrote x: its last axis but one lies first; else 1."""
    if x.dim() > 2 and not x.is_contiguous() and x.movedim(-2, 0).is_contiguous():
        return x.shape[-2]
    return 1


def _time_first(x: Float[Tensor, "*N E"]) -> Float[Tensor, "T N E"]:
    """As it lies, or in rows."""
    steps = _steps(x)
    return x.movedim(-2, 0).flatten(1, -2) if steps > 1 else x.reshape(1, -1, x.shape[-1])
