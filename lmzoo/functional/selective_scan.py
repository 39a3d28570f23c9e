r"""The recurrence of a selective state space with one decay per state and channel.

    S_t = exp(−A ⊙ Δ_t) ⊙ S_{t-1} + b_t (Δ_t ⊙ x_t)ᵀ        y_t = S_tᵀ c_t

S and A are (N, D), A > 0; x_t and Δ_t > 0 have D channels, b_t and c_t N. The kernels of
`kernels/cpu` read these vectors and write y, so that no tensor of all states is stored; the
gradients are derived here.

Gu & Dao 2023 (arXiv:2312.00752), section 3.3.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import Backward, CustomFunction, as_arrays, run_kernel


def selective_scan(
    x: Float[Tensor, "B T D"],
    delta: Float[Tensor, "B T D"],
    rate: Float[Tensor, "N D"],
    b: Float[Tensor, "B T N"],
    c: Float[Tensor, "B T N"],
    start: Float[Tensor, "B N D"],
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B N D"]]:
    """Return (y_1 .. y_T, S_T) on a CPU; `rate` is A. The tensors must have kernels."""
    return _Scan.apply(x, delta, rate, b, c, start)


class _Scan(CustomFunction):
    """(x, Δ, A, b, c, S_0), all or none with a member axis first -> (y, S_T)."""

    axes = 3

    @staticmethod
    def compute(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        from lmzoo.kernels.cpu import selective_scan as kernels

        x, start = tensors[0], tensors[-1]
        y, end = x.new_empty(x.shape), x.new_empty(start.shape)
        run_kernel(kernels.forward, *as_arrays(*tensors, y, end))
        return y, end

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _ScanBackward.apply(*upstream, *ctx.saved_tensors)


class _ScanBackward(Backward):
    """(∂L/∂y, ∂L/∂S_T, *inputs) -> gradients of all inputs."""

    axes = 3

    @staticmethod
    def compute(*tensors: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.kernels.cpu import selective_scan as kernels

        x, delta, rate, *rest = tensors[2:]
        gradients = [x.new_empty(tensor.shape) for tensor in (x, delta)]
        gradients += [x.new_zeros(rate.shape), *(x.new_empty(tensor.shape) for tensor in rest)]
        run_kernel(kernels.backward, *as_arrays(*tensors, *gradients))
        return tuple(gradients)
