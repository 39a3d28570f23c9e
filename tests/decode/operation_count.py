"""Counts of the computation that decoding does per token."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmzoo.contract import START, LanguageModel
from tests.tiny import sources


class OutputCounter(TorchDispatchMode):
    """Counts the elements of all tensors that operations return, views excluded."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            leaves = tree_leaves(result)
            self.elements += sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))
        return result


def sources_of(model: LanguageModel) -> tuple[torch.Tensor, ...]:
    """Return two sources if the model is conditional: a full one and one of a single token."""
    return sources(model.task, 2) if model.conditional else ()


@torch.no_grad()
def elements_per_step(
    model: LanguageModel, steps: int, *source: torch.Tensor, **methods: Callable
) -> list[int]:
    """Return the elements computed by each `advance` (not `begin`) for two sequences."""
    begin, advance = methods.get("begin", model.eval().begin), methods.get("advance", model.advance)
    state, token, counts = begin(2, *source), torch.tensor([START, START]), []
    for _ in range(steps):
        with OutputCounter() as counter:
            _, state = advance(state, token)
        counts.append(counter.elements)
    return counts


@torch.no_grad()
def vectors_per_step(
    model: LanguageModel, steps: int, *source: torch.Tensor
) -> list[dict[str, int]]:
    """Return the vectors that pass through each linear layer and LayerNorm, for each `advance`."""
    counts: list[dict[str, int]] = []

    def count(name: str) -> Callable:
        def hook(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
            (x,) = inputs
            counts[-1][name] = counts[-1].get(name, 0) + x.numel() // x.shape[-1]

        return hook

    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.LayerNorm)]
    state, token = model.eval().begin(2, *source), torch.tensor([START, START])
    hooks = [module.register_forward_hook(count(name)) for name, module in layers]
    for _ in range(steps):
        counts.append({})
        _, state = model.advance(state, token)
    for hook in hooks:
        hook.remove()
    return counts
