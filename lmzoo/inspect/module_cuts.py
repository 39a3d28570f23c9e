"""What can be cut in any `nn.Module`: parameters, and submodules.

    cuts(model, tokens)        the cuts of a module, found on example inputs
    apply_cut(model, name)     cut a module in place, before its optimiser is made

A cut is a text, so that it can be a setting of a study:

    hold PARAMETER             the parameter is zero in each forward pass, whatever writes it
    hold PARAMETER[2/4]        the second of four gates, heads or projections that are stacked in it
    zero MODULE                the output of the submodule is zero
    identity MODULE            the output of the submodule is its first input

A cut that changes no output is left out, and so is one with which no gradient reaches a weight.
Cuts that give equal outputs on the example inputs, at weights that are not special, are the same
function: one has the others as `aliases`. The order of operations, terms of a sum without a module
of their own, and functions that are called without a module (`torch.softmax`) are not seen.
"""

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from lmzoo.base.arguments import called, text
from lmzoo.base.errors import UserError, describe_error, near
from lmzoo.functional.copied import copied, trained_weights

HOLD = "hold"
ZERO = "zero"
IDENTITY = "identity"
GATES = {
    nn.LSTM: 4,
    nn.GRU: 3,
    nn.LSTMCell: 4,
    nn.GRUCell: 3,
}
"""Gates that a recurrent layer of torch stacks in each of its parameters."""
MOST_PARTS = 8
SPREAD = 0.3
"""Noise that is added to the weights, so that zero biases and unit gains are not special."""
TOLERANCE = 1e-5
PART = re.compile(r"(?P<path>.+)\[(?P<part>\d+)/(?P<parts>\d+)\]")


@dataclass(frozen=True)
class ModuleCut:
    """A cut of a module."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other cuts that are the same function."""


@torch.enable_grad()
def cuts(module: nn.Module, *inputs: Any) -> list[ModuleCut]:
    """Return the cuts of a module; of those that are the same function, the smallest names others.

    Args:
        module: It is not changed.
        *inputs: Example inputs of its `forward`; the more varied, the better they tell functions
            apart.

    A `UserError` says that the module fails on the inputs, or that its outputs are not finite or
    not learned.
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"{module!r:.60} is no torch module; give the module, then its inputs")
    for own in module.modules():
        if isinstance(own, torch.jit.ScriptModule):
            raise UserError(
                "a scripted module has no hooks; give the module before torch.jit.script"
            )
    generic = _generic(module, inputs)
    try:
        whole = _outputs(generic, inputs)
        again = _outputs(generic, inputs, seed=1)
    except (Exception, SystemExit) as error:
        text = describe_error(error)
        raise UserError(f"the module fails on these inputs: {text}") from error
    changes = whole is not None
    if whole is not None and again is not None:
        changes = not whole.equal(again)
    if changes:
        raise UserError(
            "outputs differ between two equal calls in evaluation: dropout is still active, or the "
            "module keeps state; make it deterministic"
        )
    if whole is None:
        raise UserError(
            "the outputs on these inputs are not finite, or depend on no parameter that is trained "
            "(requires_grad)"
        )
    found: list[tuple[Tensor, ModuleCut]] = []
    for name in _names(generic):
        changed = copied(generic)
        apply_cut(changed, name)
        output = None
        with contextlib.suppress(Exception):  # a module may raise any, when one of its parts is cut
            # The same noise for all cuts: an output differs only by what is cut.
            output = _outputs(changed, inputs)
        if output is None or _equal(output, whole):
            continue
        for i, (other, cut) in enumerate(found):
            if _equal(output, other):
                aliases = cut.aliases + (name,)
                found[i] = (other, ModuleCut(cut.name, aliases))
                break
        else:
            found.append((output, ModuleCut(name)))
    return [cut for _, cut in found]


def _generic(module: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    """Return a copy with noise on its weights, of which none waits for its shape."""
    generic = copied(module)
    # Weights near zero, or equal ones, would hide what a part does.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        if any(map(is_lazy, generic.parameters())):
            with contextlib.suppress(Exception), torch.random.fork_rng(devices=[]):
                generic(*inputs)  # it is called once more, and an error is said then
        for parameter in trained_weights(generic):
            numbers = parameter
            if parameter.is_complex():
                numbers = torch.view_as_real(parameter)
            noise = torch.randn(numbers.shape, generator=generator)
            numbers += SPREAD * noise.to(numbers)
    return generic


@called
def apply_cut(module: nn.Module, name: str) -> str:
    """Cut a module in place, before its optimiser is made; a `UserError` without such a cut.

    Returns:
        What was cut, in a line, which is also in the module's `lmzoo_cuts`. A state dict has no
        cuts: a module that loads it has its own ones, and no others.
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"{module!r:.60} is no torch module; give the module, then the cut")
    kind, _, path = text("name", name).partition(" ")
    part = PART.fullmatch(path)
    whole = path
    if part:
        whole = part["path"]
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # code that is compiled already has no hook
    weights = dict(module.named_parameters(remove_duplicate=False))  # shared ones have two names
    modules = dict(module.named_modules(remove_duplicate=False))
    if kind == HOLD and whole in weights:
        _hold(module, whole, part)
    elif kind in (ZERO, IDENTITY) and path and path in modules:
        own = modules[path]
        if kind == ZERO:
            own.register_forward_hook(_to_zero)
        else:
            _pass_through(own, name)
        for layer in module.modules():
            # torch's fused Transformer layers would not call the hook of a submodule.
            if isinstance(layer, nn.TransformerEncoderLayer):
                torch.backends.mha.set_fastpath_enabled(False)
    else:
        raise UserError(f"no cut {name!r} of this module{near(name, _names(module))}")
    line = f"{name}: in each forward pass"
    lines = vars(module).setdefault("lmzoo_cuts", [])
    lines.append(line)
    return line


def _to_zero(module: nn.Module, inputs: Any, output: Any) -> Any:
    """Return zeros in place of the output."""
    return _map(torch.zeros_like, output)


def _hold(
    module: nn.Module,
    path: str,
    part: re.Match[str] | None,
):
    parameter = module.get_parameter(path)
    if isinstance(parameter, UninitializedParameter):
        raise UserError(f"{path!r} has no shape before the first call; call the lazy module once")
    index = 1
    parts = 1
    if part is not None:
        index = int(part["part"])
        parts = int(part["parts"])
    rows = 1
    if parameter.dim():
        rows = len(parameter)
    if not 1 <= index <= parts or rows % parts:
        raise UserError(
            f"no part {index} of {parts} of {path!r}, which has {rows} rows; "
            "give one of as many equal parts"
        )
    if part is None:
        parameter.requires_grad_(False)  # noqa: FBT003  torch's own signature
    else:
        mask = torch.ones_like(parameter)
        mask.chunk(parts)[index - 1].zero_()
        parameter.register_hook(lambda gradient: gradient * mask)
    owner_path, _, name = path.rpartition(".")
    owner = module.get_submodule(owner_path)
    # Its owner may be called alone, or never: attention reads weights of its submodules.
    for own, way in {module: path, owner: name}.items():
        zero = partial(_zero, path=way, index=index, parts=parts)
        own.register_forward_pre_hook(zero)
        zero(own, ())


def _zero(
    module: nn.Module,
    inputs: Any,
    *,
    path: str,
    index: int,
    parts: int,
):
    """Set a part of a parameter to zero before a forward pass, whatever wrote it since the last."""
    values = attrgetter(path)(module).data  # a graph that has the parameter can be used after it
    if parts > 1:
        values = values.chunk(parts)[index - 1]
    values.zero_()


def _names(module: nn.Module) -> Iterator[str]:
    """Yield all cuts that may be possible: parameters first, then modules from the inside out."""
    for path, _ in module.named_parameters():
        yield f"{HOLD} {path}"
        owner_path, _, own_name = path.rpartition(".")
        owner = module.get_submodule(owner_path)
        parameter = module.get_parameter(path)
        for parts in _parts(owner, own_name, parameter):
            for part in range(1, parts + 1):
                yield f"{HOLD} {path}[{part}/{parts}]"
    modules = list(module.named_modules())
    # From the inside out: of equal cuts, the smallest part gives the name.
    for path, _ in reversed(modules):
        if path:
            yield f"{ZERO} {path}"
            yield f"{IDENTITY} {path}"


def _parts(
    owner: nn.Module,
    name: str,
    parameter: nn.Parameter,
) -> list[int]:
    """Return into how many parts a parameter may be cut.

    A module that has a matrix (kH, H) of its own stacks k matrices in all parameters with kH rows.
    A single matrix in a module without submodules is a projection, which is one thing.
    """
    if type(owner) in GATES:
        if name.startswith("weight_hr"):  # a projection of the whole state
            return []
        return [GATES[type(owner)]]
    matrices = [
        own for own in owner.parameters(recurse=False) if own.dim() == 2 and own.shape[1] > 1
    ]
    is_projection = len(matrices) < 2
    if any(owner.children()):
        is_projection = False
    if not parameter.dim() or is_projection:
        return []
    rows = len(parameter)
    counts = set()
    for matrix in matrices:
        count, rest = divmod(rows, matrix.shape[1])
        if len(matrix) == rows and not rest and 2 <= count <= MOST_PARTS:
            counts.add(count)
    return sorted(counts)


def _pass_through(module: nn.Module, name: str):
    """Let a module return its first input, which it may overwrite."""
    given = []

    def keep(
        module: nn.Module,
        inputs: Any,
        named: dict[str, Any],
    ) -> Any:
        own = list(inputs) + list(named.values())
        given.clear()
        for i, value in enumerate(own):
            if not isinstance(value, Tensor):
                continue
            if not given:
                given.append(value)
            # The module may overwrite its input; one tensor may be given twice.
            if value is given[0]:
                own[i] = value.clone()
        count = len(inputs)
        by_name = dict(zip(named, own[count:], strict=True))
        return tuple(own[:count]), by_name

    def identity(module: nn.Module, inputs: Any, output: Any) -> Any:
        first = output
        if isinstance(output, tuple):
            first = output[0]
        # Without a tensor among the inputs nothing can pass.
        if not given or _form(given[0]) != _form(first):
            raise UserError(f"{name!r} is no cut: its output has not the form of its first input")
        if isinstance(output, tuple):
            return (given.pop(),) + output[1:]
        return given.pop()

    module.register_forward_pre_hook(keep, with_kwargs=True)
    module.register_forward_hook(identity)


def _form(output: Any) -> tuple[torch.Size, torch.dtype] | None:
    """Return shape and type; None of what is no tensor."""
    if not isinstance(output, Tensor):
        return None
    return output.shape, output.dtype


def _map(function: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_map(function, item) for item in value)
    return value


def _outputs(
    module: nn.Module,
    inputs: tuple[Any, ...],
    seed: int = 0,
) -> Tensor | None:
    """Return all numbers of a module's output; None if they are not finite or not learned."""
    module.eval()
    eager: Any = contextlib.nullcontext()
    if "torch._dynamo" in sys.modules:  # to compile each cut would take seconds
        eager = torch.compiler.set_stance("force_eager")
    with torch.random.fork_rng(devices=[]), eager:
        torch.default_generator.manual_seed(seed)
        output = module(*inputs)
    tensors = []
    for tensor in _tensors(output):
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        if tensor.is_floating_point():
            tensors.append(tensor)
    if not any(tensor.requires_grad for tensor in tensors):
        return None
    numbers = torch.cat([tensor.double().flatten() for tensor in tensors])
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(numbers.shape, generator=generator)
    # Gradients of an earlier call would count as learned.
    module.zero_grad()
    loss = numbers @ factors.to(numbers)
    loss.backward()  # a reentrant checkpoint has no `torch.autograd.grad`
    is_learned = False
    for parameter in module.parameters():
        if parameter.grad is not None and parameter.grad.any():
            is_learned = True
    module.zero_grad()
    if is_learned and numbers.isfinite().all():
        return numbers.detach()
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value):
        yield from _tensors(vars(value))


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    largest = other.abs().max().item()
    difference = (one - other).abs().max().item()
    return difference < TOLERANCE * max(1.0, largest)
