"""Parts of a trained model at zero, at their mean, or as they are on another sequence.

The activation of a part is what its weights compute, x W, or what a submodule returns.

    zero        0
    mean        its mean over all positions of other sequences, as `Means` sums them
    other       what it is at the same position of another sequence, as `Recorded` keeps it

Products are found while the model runs, so the model must not use kernels (`without_kernels`).
Wang et al. 2023 (arXiv:2211.00593), for the mean; Chan et al. 2022 (causal scrubbing), for another
sequence.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

MATMUL = frozenset({"matmul", "__matmul__"})
"""x @ W, whose columns are the outputs."""
LINEAR = "linear"
"""x Wᵀ + b, where the rows of W are the outputs."""


class Place(NamedTuple):
    """Where an activation is computed: by a view of a weight, or by a submodule."""

    name: str
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0
    inputs: int = 0
    """The axis of the weight that the product sums over."""


See = Callable[[Place, Tensor], Tensor]
"""A function that gets every activation, and returns what stands in its place."""


class Part(NamedTuple):
    """What an intervention replaces."""

    weights: Mapping[str, Tensor] = {}
    """Parameter -> which of its numbers belong to the part."""
    module: str = ""
    """A submodule, in place of weights."""

    def covers(self, place: Place) -> Tensor | bool:
        """Return which features of an activation belong to the part."""
        if self.module:
            return place.name == self.module
        own = self.weights.get(place.name)
        if own is None or not place.size:
            return False
        # The same view of the mask as the product has of the weight.
        view = own.as_strided(place.size, place.stride, place.offset)
        return view.all(place.inputs)


class _Products(TorchFunctionMode):
    """Shows each product of inputs with a weight to a function."""

    def __init__(self, model: nn.Module, see: See):
        super().__init__()
        self._see = see
        # By memory, not by identity: a cell multiplies with views of its weights.
        self._names = {}
        for name, parameter in model.named_parameters():
            storage = parameter.untyped_storage()
            self._names[storage.data_ptr()] = name

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = {}
        if kwargs is not None:
            named = kwargs
        name = getattr(func, "__name__", "")
        if name == LINEAR and len(args) > 1:
            if len(args) > 2:
                bias = args[2]
            else:
                bias = named.get("bias")
            x, weight = args[:2]
            # Without the bias: it is a weight of its own.
            product = self._seen(func(x, weight), weight, -1)
            if bias is None:
                return product
            return product + bias
        # Only by a matrix: products of activations belong to no weight.
        if name in MATMUL and args[1].dim() == 2:
            return self._seen(func(*args), args[1], -2)
        return func(*args, **named)

    def _seen(self, product: Tensor, weight: Tensor, inputs: int) -> Tensor:
        memory = weight.untyped_storage().data_ptr()
        name = self._names.get(memory)
        if name is None:
            return product
        offset = int(weight.storage_offset())
        size = tuple(weight.shape)
        place = Place(name, size, weight.stride(), offset, inputs)
        return self._see(place, product)


@contextlib.contextmanager
def seen(model: nn.Module, see: See, module: str) -> Iterator[None]:
    """Show all products of weights, and the output of a submodule, to a function."""

    def replace(own: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            # As PyTorch's recurrent layers: outputs, then states.
            first = see(Place(module), output[0])
            return (first,) + output[1:]
        return see(Place(module), output)

    hook = None
    if module:
        part = model.get_submodule(module)
        hook = part.register_forward_hook(replace)
    try:
        with _Products(model, see):
            yield
    finally:
        if hook is not None:
            hook.remove()


class Means:
    """The mean of every activation over all sequences, positions and starts."""

    def __init__(self):
        self._sums: dict[Place, Tensor] = {}
        self._counts: dict[Place, int] = {}

    def __call__(self, place: Place, value: Tensor) -> Tensor:
        # In double: sums of a whole corpus.
        rows = value.detach().flatten(0, -2).double()
        total = self._sums.get(place, 0)
        self._sums[place] = total + rows.sum(0)
        count = self._counts.get(place, 0)
        self._counts[place] = count + len(rows)
        return value

    def of(self, place: Place) -> Tensor:
        return self._sums[place] / self._counts[place]


class Recorded:
    """The activations of one run of the model, in their order."""

    def __init__(self):
        self.values: list[Tensor] = []

    def __call__(self, place: Place, value: Tensor) -> Tensor:
        self.values.append(value)
        return value


def at_zero(part: Part) -> See:
    """Return a function that puts a part to zero."""
    return _replaced(part, lambda place, value: torch.zeros_like(value))


def at_mean(part: Part, means: Means) -> See:
    """Return a function that puts a part to its mean."""

    def mean(place: Place, value: Tensor) -> Tensor:
        known = means.of(place).to(value)
        return known.expand_as(value)

    return _replaced(part, mean)


def at_other(part: Part, recorded: Recorded) -> See:
    """Return a function that puts a part to what it was in the run that was recorded."""
    values = iter(recorded.values)
    # Each activation takes its own record, whether it belongs to the part or not.
    return _replaced(part, lambda place, value: next(values))


def _replaced(part: Part, other: See) -> See:
    def see(place: Place, value: Tensor) -> Tensor:
        instead = other(place, value)
        # All, nothing, or a mask of the numbers of the product.
        covered = part.covers(place)
        if covered is True:
            return instead
        if covered is False:
            return value
        return instead.where(covered, value)

    return see
