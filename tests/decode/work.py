"""How much decoding does for each token, counted and not timed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmzoo.contract import START, LanguageModel
from tests.tiny import sources


class Work(TorchDispatchMode):
    """Adds up the numbers that operations write."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            leaves = tree_leaves(result)
            self.numbers += sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))
        return result


def source_of(model: LanguageModel) -> tuple[torch.Tensor, ...]:
    """A full source and one of a single token, if the model reads one."""
    return sources(model.task, 2) if model.conditional else ()


@torch.no_grad()
def numbers_by_step(
    model: LanguageModel, steps: int, *given: torch.Tensor, **how: Callable
) -> list[int]:
    """Numbers written for each token of two sequences; reading a source is not counted."""
    begin, advance = how.get("begin", model.eval().begin), how.get("advance", model.advance)
    carried, token, counted = begin(2, *given), torch.tensor([START, START]), []
    for _ in range(steps):
        with Work() as work:
            _, carried = advance(carried, token)
        counted.append(work.numbers)
    return counted


@torch.no_grad()
def vectors_by_step(model: LanguageModel, steps: int, *given: torch.Tensor) -> list[dict[str, int]]:
    """How many vectors go through each map of the model, for each token of two sequences."""
    counted: list[dict[str, int]] = []

    def count(name: str) -> Callable:
        def hook(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
            (x,) = inputs
            counted[-1][name] = counted[-1].get(name, 0) + x.numel() // x.shape[-1]

        return hook

    maps = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.LayerNorm)]
    carried, token = model.eval().begin(2, *given), torch.tensor([START, START])
    hooks = [module.register_forward_hook(count(name)) for name, module in maps]
    for _ in range(steps):
        counted.append({})
        _, carried = model.advance(carried, token)
    for hook in hooks:
        hook.remove()
    return counted
