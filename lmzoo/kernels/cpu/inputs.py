r"""The inputs of compiled recurrences as arrays: vectors, or token ids with an embedding table.

    a_t = x_t W + b  |  projected[w_t],  projected = table W + b

For vectors the kernels (`projection.py`) compute all gradients. For tokens they compute
S_v = Σ_{w_tb = v} d_tb with d = ∂L/∂a, and from it follow ∂L/∂W = tableᵀ S, ∂L/∂b = Σ_v S_v and
∂L/∂table = Σ S Wᵀ. That is less work than products over all positions if a batch has more
positions than the vocabulary has tokens. Derived here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from torch import Size, Tensor

from lmzoo.kernels.dispatch import as_arrays

Pair = tuple[Tensor | None, Tensor | None]
"""The gradients of a weight and a bias; None where absent."""


class InputProjection(NamedTuple):
    """What `project_inputs` reads for one gate; an absent array has no elements."""

    tokens: Any
    """(T, P, B)."""
    projected: Any
    """(P, V, G), bias included."""
    x: Any
    """(T, P, B, E)."""
    weight: Any
    """(P, E, G)."""
    bias: Any
    """(P, G)."""


class ProjectionGradient(NamedTuple):
    """What `project_gradients` reads for one gate, and the gradients that it adds to."""

    tokens: Any
    sums: Any
    """S, (P, V, G)."""
    x: Any
    weight: Any
    weight_grad: Any
    bias_grad: Any
    x_grad: Any
    first: bool = False
    """Whether no other gate has written `x_grad` yet."""


AXES = {"tokens": 3, "projected": 3, "sums": 3, "x": 4, "weight": 3, "bias": 2}
"""The number of axes of each field, and of its gradient."""


class KernelInputs(ABC):
    """The inputs of a recurrence, as its kernels read them."""

    def __init__(self, like: Tensor, shape: Size) -> None:
        """Take the dtype from `like`; `shape` is (T, *P, B)."""
        self.shape, self._add_members = shape, len(shape) == 2
        self._dtype = like.new_empty(0).numpy().dtype

    @abstractmethod
    def projection(self, weight: Float[Tensor, "*P E G"] | None, bias: Tensor | None) -> Any:
        """Return the `InputProjection` of one gate; weight or bias may be absent."""

    @abstractmethod
    def gradient(
        self, weight: Float[Tensor, "*P E G"] | None, bias: Tensor | None
    ) -> tuple[Any, Callable[[], Pair]]:
        """Return a gate's `ProjectionGradient`, and a function to call after the kernel.

        The function returns the gradients of weight and bias.
        """

    @abstractmethod
    def input_gradient(self) -> Tensor:
        """Return the gradient of the vectors or of the table; call it after the kernel."""

    def token_error(self) -> IndexError:
        """Return the error to raise when a kernel stopped at an invalid token."""
        raise NotImplementedError

    def arrays(self, *tensors: Float[Tensor, "*P _ _"] | None) -> list[Any]:
        """Return arrays with the member axis first; None becomes an array without elements.

        Kernels may write to the array of a contiguous tensor.
        """
        none = np.empty((0, 0, 0), self._dtype)
        return [none if tensor is None else self._array(tensor, 0) for tensor in tensors]

    def step_arrays(self, *tensors: Float[Tensor, "T *P B _"]) -> list[Any]:
        """Return arrays with the member axis second, after time."""
        return [self._array(tensor, 1) for tensor in tensors]

    def _array(self, tensor: Tensor, axis: int) -> Any:
        return as_arrays(tensor.unsqueeze(axis) if self._add_members else tensor)[0]

    def _fill(self, kind: Any, **fields: Any) -> Any:
        """Build a `NamedTuple` of arrays from tensors; missing fields get no elements."""
        for name in kind._fields:
            axes = AXES.get(name.removesuffix("_grad"))
            if isinstance(fields.get(name), Tensor):
                fields[name] = self._array(fields[name], 0)
            elif axes and fields.get(name) is None:
                dtype = np.int64 if name == "tokens" else self._dtype
                fields[name] = np.empty((0,) * axes, dtype)
        return kind(**fields)


def kernel_inputs(first: Tensor, *table: Tensor) -> KernelInputs:
    """Wrap vectors (T, *P, B, E) in C order, or tokens (T, *P, B) and their table (*P, V, E)."""
    return KernelTokens(first, *table) if table else KernelVectors(first)


class KernelTokens(KernelInputs):
    """Tokens (T, *P, B) and their table (*P, V, E)."""

    def __init__(self, tokens: Int[Tensor, "T *P B"], table: Float[Tensor, "*P V E"]) -> None:
        super().__init__(table, tokens.shape)
        self._table, self._tokens = table, self._array(tokens, 1)
        self._sums: list[tuple[Tensor, Tensor]] = []

    def projection(self, weight: Tensor | None, bias: Tensor | None) -> Any:
        if weight is None:
            return self._fill(InputProjection, tokens=self._tokens, bias=bias)
        projected = self._table @ weight
        if bias is not None:
            projected += bias.unsqueeze(-2)
        return self._fill(InputProjection, tokens=self._tokens, projected=projected)

    def gradient(
        self, weight: Tensor | None, bias: Tensor | None
    ) -> tuple[Any, Callable[[], Pair]]:
        if weight is None:
            bias_grad = zero_gradient(bias)
            fields = self._fill(ProjectionGradient, tokens=self._tokens, bias_grad=bias_grad)
            return fields, lambda: (None, bias_grad)
        table, sums = self._table, weight.new_zeros(*self._table.shape[:-1], weight.shape[-1])
        self._sums.append((sums, weight))
        fields = self._fill(ProjectionGradient, tokens=self._tokens, sums=sums)
        return fields, lambda: (table.mT @ sums, None if bias is None else sums.sum(-2))

    def input_gradient(self) -> Float[Tensor, "*P V E"]:
        gradient = self._table.new_zeros(self._table.shape)
        for sums, weight in self._sums:
            gradient += sums @ weight.mT
        return gradient

    def token_error(self) -> IndexError:
        last, least, most = self._table.shape[-2] - 1, self._tokens.min(), self._tokens.max()
        return IndexError(f"token ids must be in 0..{last}; found {least}..{most}")


class KernelVectors(KernelInputs):
    """Vectors x (T, *P, B, E) in C order."""

    def __init__(self, x: Float[Tensor, "T *P B E"]) -> None:
        super().__init__(x, x.shape[:-1])
        self._x, self._vectors = x, self._array(x, 1)
        self._x_grad: Tensor | None = None

    def projection(self, weight: Tensor | None, bias: Tensor | None) -> Any:
        return self._fill(InputProjection, x=self._vectors, weight=weight, bias=bias)

    def gradient(
        self, weight: Tensor | None, bias: Tensor | None
    ) -> tuple[Any, Callable[[], Pair]]:
        weight_grad, bias_grad = zero_gradient(weight), zero_gradient(bias)
        fields = {"weight": weight, "weight_grad": weight_grad, "bias_grad": bias_grad}
        if weight is not None:
            fields |= self._x_gradient()
        gradient = self._fill(ProjectionGradient, x=self._vectors, **fields)
        return gradient, lambda: (weight_grad, bias_grad)

    def input_gradient(self) -> Float[Tensor, "T *P B E"]:
        return self._x.new_zeros(self._x.shape) if self._x_grad is None else self._x_grad

    def _x_gradient(self) -> dict[str, Any]:
        """Return the buffer of ∂L/∂x, in the batch-first order that the caller's inputs have."""
        first = self._x_grad is None
        if self._x_grad is None:
            batch_first = self._x.movedim(0, -2)
            self._x_grad = batch_first.new_empty(batch_first.shape).movedim(-2, 0)
        x_grad = self._x_grad.unsqueeze(1) if self._add_members else self._x_grad
        return {"x_grad": x_grad.detach().numpy(), "first": first}


def zero_gradient(tensor: Tensor | None) -> Tensor | None:
    """Return contiguous zeros of the tensor's shape; None for None."""
    return None if tensor is None else tensor.new_zeros(tensor.shape)
